"""Dockerfiles, read as BuildKit documents them. Pure: text in, stages of instructions out.

Source: https://docs.docker.com/reference/dockerfile/
"""
