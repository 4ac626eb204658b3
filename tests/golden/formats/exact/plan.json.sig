{
 "format": "reconciler.signature/1",
 "plan_sha256": "42bde90e3a425f48a62090c0a4c11b83df255cce976cf91b3b69bafed6286e43",
 "key_id": "253735b09cd26860f1106bbd5e3eb02e5e139500376b3e585f21da5b2a00da74",
 "public_key": "BHtrOfdvoA1egtaoMMObbliA9M2Mtj20NkZlyQuFGww=",
 "signature": "gDV71vxU8wCBWqNtkQracYUeNZ1XR1qvOrcLSAJqPOT9UiDUynzds5qnsI7isKCluL50OYUPOnG3mRK1CZJqDA=="
}
