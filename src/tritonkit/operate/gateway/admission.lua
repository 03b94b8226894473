-- The second part of the program that Envoy runs before every request: who calls, and whether for what they may.
--
-- `identify` exchanges an API key for what is known of it. `admit` then finds the model and says in the request's
-- metadata that it may go on. Where JSON Web Tokens are accepted, two filters run them, and what is left in
-- `authorization` is for the filter that checks tokens, between the two; else one filter runs both, which costs less. A
-- filter after it lets nothing else pass, so that an error in here refuses a request.

local LONGEST_KEY = 128
local LONGEST_NAME = 512
local MOST_FIELDS = 4096
local MOST_HASHED = 1024
local WINDOW = 4096
local EVERY = "*"
local INVALID_ARGUMENT = "3"
local UNIMPLEMENTED = "12"

local function refuse(handle, status, words, grpc_status)
  local headers = { [":status"] = status, ["content-type"] = "text/plain" }
  headers["grpc-status"] = grpc_status
  if grpc_status == UNIMPLEMENTED then
    headers["grpc-accept-encoding"] = "identity"
  end
  handle:respond(headers, words)
end

local function note(handle, name, value)
  handle:streamInfo():dynamicMetadata():set(SPACE, name, value)
end

-- The key of a request and nil, or nil and nil where it has none, or nil and what is wrong.
local function key_of(headers)
  local given = headers:get("x-api-key")
  local bearer = headers:get("authorization")
  local token = bearer and bearer:match("^[Bb][Ee][Aa][Rr][Ee][Rr] +(%S+)$")
  if token and sub(token, 1, #KEY_PREFIX) == KEY_PREFIX then
    headers:remove("authorization")
    if given and given ~= token then
      return nil, "two keys: wanted one, in x-api-key or in authorization"
    end
    given = token
  end
  headers:remove("x-api-key")
  if given and #given > LONGEST_KEY then
    return nil, "the key: it is none of this gateway's"
  end
  return given, nil
end

-- The hashes of keys that were good when last seen: making one takes longer than all else in here. It is this worker's
-- memory alone, and says nothing of what a key may do: that is looked up by its hash for each request.
local hashed, how_many = {}, 0

local function remember(key, hash)
  if how_many == MOST_HASHED then
    hashed, how_many = {}, 0
  end
  hashed[key], how_many = hash, how_many + 1
end

-- What is known of a key, or nil.
local function known_by(handle, key)
  local hash = hashed[key]
  local found = handle:metadata():get(hash or sha256(key))
  if found and not hash then
    remember(key, sha256(key))
  elseif hash and not found then
    hashed[key], how_many = nil, how_many - 1
  end
  return found
end

-- What is known of the request's key; nil where it has none, or was refused.
local function identify(handle)
  local key, problem = key_of(handle:headers())
  if problem then
    return refuse(handle, "401", problem)
  end
  if not key then
    -- What may be a token is looked at by the next filter; all else ends here, before anything of it is gathered.
    local bearer = handle:headers():get("authorization")
    if not (ACCEPTS_TOKENS and bearer and bearer:match("^Bearer %S+$")) then
      refuse(handle, "401", "no key: wanted one in x-api-key, or in authorization as Bearer")
    end
    return nil
  end
  local found = known_by(handle, key)
  if not found then
    return refuse(handle, "401", "the key: it is none of this gateway's, or was revoked")
  end
  note(handle, "key", found.name)
  if found.limited then
    note(handle, "shared", found.name)
  end
  return found
end

local function is_for_us(audience)
  if #AUDIENCES == 0 then
    return true
  end
  for _, each in ipairs(type(audience) == "table" and audience or { audience }) do
    for _, own in ipairs(AUDIENCES) do
      if each == own then
        return true
      end
    end
  end
  return false
end

-- The problem of a token whose signature, issuer and times the filter before has found to be good; nil where it has none.
local function problem_of(checked)
  if not checked or not checked.claims or not checked.header then
    return "no key or token: wanted one"
  elseif checked.header.crit ~= nil then
    return "the token: found crit in its header, wanted no extension that must be understood"
  elseif type(checked.claims.sub) ~= "string" or checked.claims.sub == "" then
    return "the token: found no subject, wanted one in sub"
  elseif not is_for_us(checked.claims.aud) then
    return "the token: found an audience that is not this gateway's, wanted one of jwt.audiences in aud"
  end
  return nil
end

-- The same of a JSON Web Token; nil where it was refused.
local function from_token(handle)
  local checked = handle:streamInfo():dynamicMetadata():get("envoy.filters.http.jwt_authn")
  local problem = problem_of(checked)
  if problem then
    return refuse(handle, "401", problem)
  end
  local claims = checked.claims
  local models = claims[MODELS_CLAIM] or DEFAULT_MODELS
  if type(models) == "string" then
    local list = {}
    for each in models:gmatch("[^%s,]+") do
      list[#list + 1] = each
    end
    models = list
  end
  local clean = sub(claims.sub:gsub("[^%w._@:|/+-]", "_"), 1, 128)
  -- Two subjects must not become one caller.
  local name = "jwt:" .. (clean == claims.sub and clean or sub(clean, 1, 112) .. "#" .. sub(sha256(claims.sub), 1, 15))
  note(handle, "key", name)
  note(handle, "counted", "jwt")
  if LIMITS_TOKENS then
    note(handle, "subject", name)
    note(handle, "shared", name)
  end
  return { name = name, models = type(models) == "table" and models or {}, limited = LIMITS_TOKENS }
end

-- What the filter before has found out, where there are two.
local function found_before(handle)
  local noted = handle:streamInfo():dynamicMetadata():get(SPACE)
  if noted and noted.who then
    return noted.who
  end
  return from_token(handle)
end

local function holds(models, wanted)
  for _, each in ipairs(models) do
    if each == wanted or each == EVERY then
      return true
    end
  end
  return false
end

-- A protobuf varint of at most five bytes at an index of a text, and the index after it; nil where it is none.
local function varint(text, k)
  local number, scale = 0, 1
  for _ = 1, 5 do
    local part = byte(text, k)
    if not part then
      return nil
    end
    number, k = number + part % 128 * scale, k + 1
    if part < 128 then
      return number, k
    end
    scale = scale * 128
  end
  return nil
end

-- The first field of a gRPC message, which is the model's name in all that name one: the last of it, as protobuf decodes
-- it, and "" where there is none. nil where it is not exactly one message as it is, of few fields that all are of the
-- kind that these messages have (a tag of one byte, then a length): whatever Triton's decoder might read otherwise.
local function first_field(body)
  local size = body:length()
  if size < 5 then
    return nil
  end
  local text, start = body:getBytes(0, math.min(size, WINDOW)), 0
  local packed, a, b, c, d = byte(text, 1, 5)
  if packed ~= 0 or ((a * 256 + b) * 256 + c) * 256 + d ~= size - 5 then
    return nil
  end
  local at, name = 5, ""
  for _ = 1, MOST_FIELDS do
    if at == size then
      return name
    end
    local known = start + #text
    if at + 6 > known and known < size then
      text, start = body:getBytes(at, math.min(size - at, WINDOW)), at
    end
    local tag = byte(text, at - start + 1)
    local length, k = varint(text, at - start + 2)
    if tag >= 128 or tag < 8 or tag % 8 ~= 2 or not length then
      return nil
    end
    at = start + k - 1
    if at + length > size then
      return nil
    end
    if tag == 10 then
      if length > LONGEST_NAME then
        return nil
      end
      name = body:getBytes(at, length)
    end
    at = at + length
  end
  return nil
end

-- The model that a request names, EVERY where it means all, "" where it means none, nil where it cannot be told.
local function model_of(handle, route)
  if route == "grpc-model" or route == "grpc-about" or route == "grpc-one" then
    local body = handle:body()
    local name = body and first_field(body)
    return name == "" and EVERY or name
  elseif route == "rest-model" then
    return handle:headers():get(":path"):match("^/v2/models/([^/?]+)") or EVERY
  elseif route == "grpc-stream" or route == "grpc-every" or route == "rest-every" then
    return EVERY
  end
  return ""
end

-- Of a model that is released: marks the request for the routes that split it, which are looked at once more.
local function choose(handle)
  local wanted = handle:headers():get(CHOICE)
  local group = (wanted == "candidate" or wanted == "stable") and wanted or "split"
  note(handle, "group", group)
  if group ~= "stable" then
    handle:clearRouteCache()
  end
end

local function admit(handle, who)
  local encoding = handle:headers():get("grpc-encoding")
  if encoding and encoding ~= "identity" then
    return refuse(handle, "400", "grpc-encoding: wanted identity, send messages as they are", UNIMPLEMENTED)
  end
  local route = handle:streamInfo():routeName()
  if route == "grpc-stream" and handle:headers():get(REQUESTS) == "1" then
    -- Its one message is waited for, and the end of what its caller sends: then nothing more can follow.
    route = "grpc-one"
  elseif route == "grpc-stream" and who.limited then
    return refuse(handle, "403", "streams: wanted a key without a rate, for one has any number of requests")
  end
  local model = model_of(handle, route)
  if not model then
    return refuse(handle, "400", "the message: wanted one of the inference protocol's, as it is", INVALID_ARGUMENT)
  end
  local served = model ~= "" and handle:metadata():get("model " .. model)
  -- What is measured is counted for each name: a caller must not be able to make them up.
  note(handle, "model", model == EVERY and "all" or model == "" and "none" or served and model or "unknown")
  if model ~= "" and not holds(who.models, model) then
    local what = model == EVERY and "streams and all models at once: wanted a key for all models"
      or "this model: wanted a key that may use it"
    return refuse(handle, "403", what)
  end
  note(handle, "admitted", true)
  if served == SPLIT and route ~= "grpc-one" then
    choose(handle)
  end
end

function envoy_on_request(handle)
  local who
  if IDENTIFIES then
    who = identify(handle)
  else
    who = found_before(handle)
  end
  if who and ADMITS then
    admit(handle, who)
  elseif who then
    note(handle, "counted", who.name)
    note(handle, "who", who)
  end
end
