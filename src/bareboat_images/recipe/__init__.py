"""Parses Dockerfiles as documented by BuildKit. Pure: text in, stages of instructions out.

Source: https://docs.docker.com/reference/dockerfile/
"""
