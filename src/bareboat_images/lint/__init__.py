"""Lint: finds what makes a Dockerfile or an image large, slow, unsafe or unable to run on a cluster.

A rule is one object (`rule`): a code, a title, a remedy, examples, and its checks. The modules of rules are
listed in `registry`: add a rule there. docs/lint.md shows them.
"""
