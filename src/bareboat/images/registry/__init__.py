"""Registries: images read from, and pushed to, whatever speaks the OCI distribution protocol.

    client       an image in a registry or its mirrors, as a `Source`
    blob         one blob on its way, which goes on where it broke
    pusher       content on its way into a registry
    endpoint     one repository of one registry: what it is asked, and what its refusals mean
    exchange     one request with its redirects, repetitions and waits
    limits       how many pulls are left
    auth         challenges and tokens
    credentials  who the user is, for which registry
    http         connections, kept alive
    failure      what it means when one fails
    tls          which authorities are trusted
    proxy        which proxy leads where
    location     where things are: URLs, registries, mirrors
    options      what the user may set

Source: OCI Distribution Specification 1.1, https://github.com/opencontainers/distribution-spec
"""
