{
 "format": "reconciler.signatures/1",
 "plan_sha256": "bf0110bd6ee7c95d0d88d431b2c716aa326d2e43265a6e78e3b0a7e0d76034fd",
 "signatures": [
  {
   "key_id": "253735b09cd26860f1106bbd5e3eb02e5e139500376b3e585f21da5b2a00da74",
   "public_key": "BHtrOfdvoA1egtaoMMObbliA9M2Mtj20NkZlyQuFGww=",
   "signature": "xfnM2kkNaRWxazuZQUE+d5ZSU9c8ii3iWLMw6e0HEBdUPKbNVXhb+5MqJjeY23cD8BUTBroQmCXcSKOs342FCw=="
  },
  {
   "key_id": "34682b7a1b2869e661df13c86efaa46a39f6621717b46343abeb71042895ffdd",
   "public_key": "J8zHDrJcRXHXNYipsbLo4tJ3z4gWwFPkwZFLw5U4d1A=",
   "signature": "KG6irQ4gQtHhoNuPAFBm4ICZpE0gCc9l3gwMckzjLw2nJuaZJD/xBz5FANMw2CkUhOzXaQDKKVMEF1/C+feBDw=="
  }
 ]
}
