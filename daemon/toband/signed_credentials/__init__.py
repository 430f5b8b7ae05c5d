"""Reads credentials that others signed: client certificates, and tokens of issuers with their published keys."""
