-- Carillon · rest.lua
-- SPDX-License-Identifier: Apache-2.0
--
-- The load of `benchmarks rest`, for wrk: GET of one path for random users. Arguments: a file with a token a line, the
-- path. Prints one line of JSON at the end.

local requests = {}

function init(arguments)
    for token in io.lines(arguments[1]) do
        requests[#requests + 1] = wrk.format("GET", arguments[2], { ["Authorization"] = "Bearer " .. token })
    end
    -- From here on a request costs the load one random number.
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
