// Carillon · TransferCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct TransferCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "transfer")

    func run() async throws {}
}
