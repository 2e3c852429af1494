# Carillon · version.py
# SPDX-License-Identifier: Apache-2.0
"""The version of the package, which is the server's."""

__version__ = "1.0.0-dev"
