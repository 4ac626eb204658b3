{
 "format": "reconciler.signature/1",
 "plan_sha256": "55ee4c3555fdb890b133c446111f2296b8a1803f3eda3e9306b11ccb29ebf3b5",
 "key_id": "253735b09cd26860f1106bbd5e3eb02e5e139500376b3e585f21da5b2a00da74",
 "public_key": "BHtrOfdvoA1egtaoMMObbliA9M2Mtj20NkZlyQuFGww=",
 "signature": "8qIkLJihh/DlPfTb7nLz+0XpZb4qJU11Arlfux35+/AxQCZ2ZIP7D2Dx5+N9KG7Z113aL5CTKYjc9ZB4GwqhBg=="
}
