"""Signatures: who must have signed an image according to a policy, and who did.

    place       the location of the policy, and whether it requires anything
    policy      the policy file of skopeo and Podman, parsed strictly
    scopes      the policy's entry that applies to a reference
    identity    comparison of the name in a signature with the requested name
    payload     the signed content
    sigstore    cosign's signatures, stored with the image in its registry
    openpgp     OpenPGP signatures and keyrings
    lookaside   the location of simple signatures
    sif         the signatures inside a SIF
    check       all of these: a verdict, or a refusal
    summary     a verdict in one line

The libraries for verification are optional, and imported only if a policy requires them. Without them such a
policy is an error.
"""
