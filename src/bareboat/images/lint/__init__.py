"""Lint: what makes a Dockerfile or an image large, slow, unsafe or impossible to run on a cluster.

A rule is one object (`rule`): a code, a title, a remedy, examples, and its checks. The modules of rules are
listed in `registry`, which is where a rule is added; docs/lint.md is written from them.
"""
