-- Carillon · rest.lua
-- SPDX-License-Identifier: Apache-2.0
--
-- The load of `benchmarks rest` for wrk: GET requests to one path as random users.
-- Arguments: a file with one token per line, and the path. Prints one line of JSON at the end.

local requests = {}

function init(arguments)
    for token in io.lines(arguments[1]) do
        requests[#requests + 1] = wrk.format("GET", arguments[2], { ["Authorization"] = "Bearer " .. token })
    end
    -- A request then costs only one random number.
    math.randomseed(1)
end

function request()
    return requests[math.random(#requests)]
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format(
        '{"per_second":%f,"p50_ms":%f,"p99_ms":%f,"failed":%d.0}',
        summary.requests / summary.duration * 1e6,
        latency:percentile(50) / 1000,
        latency:percentile(99) / 1000,
        errors.status + errors.connect + errors.read + errors.write + errors.timeout
    ))
end
