// Carillon · RedisCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

struct RedisCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "redis")

    func run() async throws {}
}
