{
 "format": "reconciler.signature/1",
 "plan_sha256": "720ffe6599d6d0dbe557c1e6c1575826d822954eb0bfdbda33d2aa2e406e16d0",
 "key_id": "253735b09cd26860f1106bbd5e3eb02e5e139500376b3e585f21da5b2a00da74",
 "public_key": "BHtrOfdvoA1egtaoMMObbliA9M2Mtj20NkZlyQuFGww=",
 "signature": "PRESoaTMpw8VUl9VWEu8jMsgiJgafc9nBaNpkW6PxPlgqvRjRkiQeBsmDTkx8JEn6HvJo9qenvVGXAkaK+IPCg=="
}
