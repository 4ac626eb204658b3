"""Tests of what writes a plan, and puts back what it replaced."""
