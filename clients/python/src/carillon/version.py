# Carillon · version.py
# SPDX-License-Identifier: Apache-2.0
"""The version of the package and of the server that it comes with."""

__version__ = "1.0.0-dev"
