// Carillon · main.swift
// SPDX-License-Identifier: Apache-2.0
