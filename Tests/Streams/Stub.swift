// Carillon · Stub.swift
// SPDX-License-Identifier: Apache-2.0
