"""Signatures: who must have signed an image, by which policy, and who did.

    place       where the policy is, and whether it requires anything
    policy      the policy file that skopeo and Podman read, parsed strictly
    scopes      which of its entries applies to a reference
    identity    whether the name that a signature gives is the name that was asked for
    payload     what a signature signs
    sigstore    cosign's signatures beside the image in its registry
    openpgp     OpenPGP signatures and keyrings
    lookaside   where simple signatures are kept
    sif         the signatures inside a SIF
    check       all of it: a verdict, or a refusal
    summary     a verdict in one line

The libraries that verify are optional, and imported where a policy requires them. Without them such a policy
is an error.
"""
