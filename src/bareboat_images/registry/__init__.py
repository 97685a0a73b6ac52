"""Registries: pulls images from, and pushes them to, registries with the OCI distribution protocol.

    client       an image in a registry or its mirrors, as a `Source`
    blob         download of one blob, resumed after interruptions
    pusher       uploads to a registry
    endpoint     requests to one repository of one registry, and the meaning of refusals
    exchange     one request with its redirects, retries and waits
    limits       remaining pulls of a rate limit
    auth         challenges and tokens
    credentials  the user's credentials for a registry
    http         persistent connections
    failure      the meaning of connection errors
    tls          trusted certificate authorities
    proxy        the proxy for a URL
    location     URLs, registries, mirrors
    options      user settings

Source: OCI Distribution Specification 1.1, https://github.com/opencontainers/distribution-spec
"""
