-- The second part of the program that Envoy runs, behind rest_json.lua: what a request for inference may
-- say, and Envoy's calls. Triton calls most mistakes of a caller an internal error; here they are named.

local function is_index(kind, value)
  return kind == "whole" and value >= 0 and value < 2 ^ 53
end

local KINDS = {
  boolean = "true or false", null = "null", object = "an object", real = "a fraction",
  string = "a string", whole = "a whole number",
}

local BOOLEAN = { wanted = "true or false", accepts = function(kind) return kind == "boolean" end }
local STRING = { wanted = "a string", accepts = function(kind) return kind == "string" end }
local INDEX = { wanted = "a whole number from 0", accepts = is_index }
local SEQUENCE = {
  wanted = "a string, or a whole number from 0",
  accepts = function(kind, value) return kind == "string" or is_index(kind, value) end,
}

-- One value that is no list and no object, as `rule` has it. Also the value of a number.
local function after_rule(at, place, rule)
  local c
  at, c = after_space(at)
  if c == OPEN_LIST or c == OPEN_OBJECT then
    refuse(place, kind_of(c), rule.wanted)
  end
  local tally = new_tally()
  at = after_scalar(at, c, tally)
  local value = tally.least < 0 and tally.least or tally.most
  for kind in pairs(KINDS) do
    if tally[kind] > 0 and not rule.accepts(kind, value) then
      refuse(place, kind == "whole" and string.format("%.0f", value) or KINDS[kind], rule.wanted)
    end
  end
  return at, value
end

-- The parameters that mean something to Triton; any other is the model's.
local PARAMETERS = {
  binary_data = BOOLEAN, binary_data_output = BOOLEAN, binary_data_size = INDEX, classification = INDEX,
  priority = INDEX, sequence_end = BOOLEAN, sequence_id = SEQUENCE, sequence_start = BOOLEAN,
  shared_memory_byte_size = INDEX, shared_memory_offset = INDEX, shared_memory_region = STRING,
  timeout = INDEX,
}

local function after_parameters(at, depth, place)
  return (after_object(at, depth, place, function(name, value_at)
    local where = place .. "." .. name
    if not LIMITS.shared_memory and sub(name, 1, 14) == "shared_memory_" then
      refuse(place .. ".shared_memory_*", "a request by shared memory", "the data itself; this server has that off")
    end
    return PARAMETERS[name] and (after_rule(value_at, where, PARAMETERS[name]))
  end))
end

local function whole_of(bits, signed)
  local least = signed and -2 ^ (bits - 1) or 0
  local most = least + 2 ^ bits - 1
  if bits == 64 then
    -- After 15 digits the count is not exact: what is just out of range is Triton's to refuse.
    least, most = least * (1 + 2 ^ -40), most * (1 + 2 ^ -40)
  end
  return { values = "whole numbers in its range", least = least, most = most, whole = true }
end

local DATATYPES = {
  BOOL = { values = "true or false", boolean = true },
  UINT8 = whole_of(8), UINT16 = whole_of(16), UINT32 = whole_of(32), UINT64 = whole_of(64),
  INT8 = whole_of(8, true), INT16 = whole_of(16, true), INT32 = whole_of(32, true), INT64 = whole_of(64, true),
  FP16 = { values = "no JSON: binary data" }, BF16 = { values = "no JSON: binary data" },
  FP32 = { values = "numbers", whole = true, real = true },
  FP64 = { values = "numbers", whole = true, real = true },
  BYTES = { values = "strings", string = true },
}

local function check_data(place, datatype, elements, tally)
  local rule, count = DATATYPES[datatype], 0
  for kind, name in pairs(KINDS) do
    if tally[kind] > 0 and not rule[kind] then
      refuse(place, name, "for " .. datatype .. " " .. rule.values)
    end
    count = count + tally[kind]
  end
  if rule.least and (tally.least < rule.least or tally.most > rule.most) then
    refuse(place, "a number out of range", "for " .. datatype .. " " .. rule.values)
  end
  if count ~= elements then
    refuse(place, count == 1 and "1 value" or count .. " values", string.format("%.0f, as the shape says", elements))
  end
end

-- Also how many elements it has.
local function after_shape(at, place)
  local elements = 1
  at = after_list(at, place, LIMITS.max_dimensions, function(size_at, where)
    local behind, size = after_rule(size_at, where, INDEX)
    elements = elements * size
    return behind
  end)
  -- No element takes less than a byte; without this the product could run over in Triton.
  if elements > LIMITS.max_elements then
    refuse(place, string.format("%.3g elements", elements), LIMITS.max_elements .. " at most")
  end
  return at, elements
end

local function need(found, place, names)
  for _, name in ipairs(names) do
    if not found[name] then
      refuse(place, "no " .. name, table.concat(names, ", "))
    end
  end
end

local function after_input(at, place)
  local datatype, elements, tally
  local function each(name, value_at)
    local where, behind = place .. "." .. name, nil
    if name == "name" then
      return (after_rule(value_at, where, STRING))
    elseif name == "datatype" then
      value_at = after_space(value_at)
      behind = after_rule(value_at, where, STRING)
      datatype = sub(text, value_at + 1, behind - 2)
      if not DATATYPES[datatype] then
        refuse(where, "none that Triton knows", "BOOL, INT8 to INT64, UINT8 to UINT64, FP16, BF16, FP32, FP64 or BYTES")
      end
      return behind
    elseif name == "shape" then
      behind, elements = after_shape(value_at, where)
      return behind
    elseif name == "data" then
      local _, c = after_space(value_at)
      if c ~= OPEN_LIST then
        refuse(where, kind_of(c), "a list")
      end
      tally = new_tally()
      return after_value(value_at, 3, tally)
    end
    return name == "parameters" and after_parameters(value_at, 4, where) or nil
  end
  local behind, found = after_object(at, 3, place, each)
  need(found, place, { "name", "shape", "datatype" })
  if tally then
    check_data(place .. ".data", datatype, elements, tally)
  end
  return behind
end

local function after_output(at, place)
  local behind, found = after_object(at, 3, place, function(name, value_at)
    if name == "name" then
      return (after_rule(value_at, place .. ".name", STRING))
    end
    return name == "parameters" and after_parameters(value_at, 4, place .. ".parameters") or nil
  end)
  need(found, place, { "name" })
  return behind
end

local function check_request(json, is_infer)
  text = json
  local at, found = after_object(1, 1, "the request", function(name, value_at)
    if name == "id" then
      return (after_rule(value_at, "id", STRING))
    elseif name == "parameters" then
      return after_parameters(value_at, 2, "parameters")
    elseif is_infer and name == "inputs" then
      return after_list(value_at, "inputs", LIMITS.max_tensors, after_input)
    elseif is_infer and name == "outputs" then
      return after_list(value_at, "outputs", LIMITS.max_tensors, after_output)
    end
    return nil
  end)
  if after_space(at) <= #text then
    malformed(at, "nothing more")
  end
  if is_infer then
    need(found, "the request", { "inputs" })
  end
end

-- Envoy's side ---------------------------------------------------------------------------------------

local LENGTH_HEADER = "inference-header-content-length"

-- How many bytes of the body are JSON; the rest is tensors' raw data.
local function json_length(headers, total)
  local value = headers:get(LENGTH_HEADER)
  if not value then
    return total
  end
  local length = headers:getNumValues(LENGTH_HEADER) == 1 and #value <= 12 and value:match("^%d+$") and tonumber(value)
  if not length or length > total then
    refuse("the header Inference-Header-Content-Length", "no length of a part of the body",
      "one whole number from 0 to " .. total .. ", the bytes of the body")
  end
  return length
end

-- A caller's requests differ in their data, and seldom in the JSON before it: what was right once is not read again.
local RIGHT = { count = 0, infer = {}, other = {} }

local function check_once(json, is_infer)
  local known = is_infer and RIGHT.infer or RIGHT.other
  if known[json] then
    return
  end
  check_request(json, is_infer)
  if #json <= LIMITS.remembered_bytes then
    if RIGHT.count == LIMITS.remembered then
      RIGHT.count, RIGHT.infer, RIGHT.other = 0, {}, {}
      known = is_infer and RIGHT.infer or RIGHT.other
    end
    RIGHT.count, known[json] = RIGHT.count + 1, true
  end
end

local function check(headers, body)
  local is_infer = headers:get(":path"):match("^[^?]*"):match("[^/]*$") == "infer"
  if not is_infer then
    headers:remove(LENGTH_HEADER) -- Triton reads all of these bodies as JSON
  end
  local length = json_length(headers, body:length())
  if length > LIMITS.max_json_bytes then
    error({ status = "413", message = "the request's JSON: found " .. length .. " bytes, wanted "
      .. LIMITS.max_json_bytes .. " at most; send tensors as binary data" }, 0)
  end
  -- Length 0 says that the whole body is one tensor's raw data.
  if length > 0 or body:length() == 0 then
    check_once(body:getBytes(0, length), is_infer)
  end
end

function envoy_on_request(handle)
  local body = handle:body(true) -- waits for it; headers taken before that would be gone
  local right, failure = pcall(check, handle:headers(), body)
  text = nil
  if right then
    return
  end
  if type(failure) ~= "table" then
    handle:logErr("rest.lua: " .. tostring(failure))
    failure = { message = "this request could not be checked" }
  end
  handle:respond({ [":status"] = failure.status or "400" }, failure.message)
end

-- What only the model's own configuration can tell, Triton finds in the JSON, and calls its own fault.
local CALLERS_FAULTS = {
  "attempt to access JSON", "attempt to get members for non-object", "failed to parse the request JSON",
}

function envoy_on_response(handle)
  local headers = handle:headers()
  local length = tonumber(headers:get("content-length") or "")
  if headers:get(":status") ~= "500" or not length or length > 65536 then
    return
  end
  local body = handle:body(true)
  local answer = body:getBytes(0, body:length())
  for _, words in ipairs(CALLERS_FAULTS) do
    if answer:find(words, 1, true) then
      handle:headers():replace(":status", "400")
    end
  end
end
