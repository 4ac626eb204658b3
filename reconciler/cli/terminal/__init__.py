"""The terminal: tables, prompts, help, logs, and text made safe to print.

In: values of the product. Out: lines for stdout and stderr. The only table renderer and the only escaping are here.
"""
