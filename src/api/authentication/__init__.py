"""Authentication of clients: certificates, passwords (SCRAM, PLAIN) and tokens (OAUTHBEARER)."""
