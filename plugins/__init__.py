"""Scheduling plugins, one file each, under the names that Volcano gives them."""
