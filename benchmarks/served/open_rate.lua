-- wrk at an open rate: request n is sent n / rate seconds after the first, whatever came of others.
--
-- A connection that is free takes the next place in the schedule. With so many connections none
-- waits for an answer, unless all of them do; how many requests were late, and by how much at most,
-- is in the last line, so that a server that was too slow for the rate cannot hide it.
--
--     wrk -t1 -c64 -d20s -s open_rate.lua URL -- RATE BODIES
--
-- BODIES has one body a line; they are sent one after the other, again from the first at its end.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long s; long ns; } clock_time;
  int clock_gettime(int clock, clock_time *time);
]]
local time = ffi.new("clock_time")

local function now_ms()
  ffi.C.clock_gettime(1, time)
  return tonumber(time.s) * 1e3 + tonumber(time.ns) / 1e6
end

local place, began = 0, nil
local bodies, sent_bodies = {}, 0
sent, late, latest_ms, statuses, versions = 0, 0, 0, "", ""
local by_status, by_version, due = {}, {}, {}
local LATE_MS = 10

function init(args)
  every_ms = 1e3 / tonumber(args[1])
  for line in io.lines(args[2]) do
    bodies[#bodies + 1] = wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, line)
  end
end

function delay()
  began = began or now_ms()
  local at = began + place * every_ms
  place = place + 1
  -- Of connections that wait, the one with the earliest place is the first to send.
  table.insert(due, at)
  return math.max(0, math.floor(at - now_ms() + 0.5))
end

function request()
  local at = table.remove(due, 1)
  if at then
    local lag = now_ms() - at
    sent = sent + 1
    if lag > LATE_MS then late = late + 1 end
    if lag > latest_ms then latest_ms = lag end
  end
  sent_bodies = sent_bodies + 1
  return bodies[(sent_bodies - 1) % #bodies + 1]
end

local function counted(counts)
  local parts = {}
  for name, count in pairs(counts) do parts[#parts + 1] = string.format('"%s": %d', name, count) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

function response(status, headers, body)
  by_status[status] = (by_status[status] or 0) + 1
  local version = string.match(body, '"model_version": ?"(%d+)"')
  if version then by_version[version] = (by_version[version] or 0) + 1 end
  statuses, versions = counted(by_status), counted(by_version)
end

local threads = {}
function setup(thread) threads[#threads + 1] = thread end

function done(summary, latency, requests)
  local thread, errors = threads[1], summary.errors
  io.write(string.format(
    '\n{"p50_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f, "answers": %d, "seconds": %.3f, ' ..
    '"broken": %d, "sent": %d, "late": %d, "latest_ms": %.1f, "statuses": %s, "versions": %s}\n',
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.timeout,
    thread:get("sent"), thread:get("late"), thread:get("latest_ms"),
    thread:get("statuses"), thread:get("versions")))
end
