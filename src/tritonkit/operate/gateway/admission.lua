-- The second part of the program that Envoy runs before every request: who calls, and whether for what they may.
--
-- Two filters run it. `identify` comes first: it exchanges an API key for the name that it was given out under. What
-- is left in `authorization` is for the filter that checks JSON Web Tokens, between the two. `admit` then finds the
-- model and says in the request's metadata that it may go on. A filter after both lets nothing else pass, so that
-- an error in here refuses a request.

local LONGEST_KEY = 128
local MOST_HASHED = 1024
local EVERY = "*"

local function refuse(handle, status, words)
  handle:respond({ [":status"] = status, ["content-type"] = "text/plain" }, words)
end

local function note(handle, name, value)
  handle:streamInfo():dynamicMetadata():set(SPACE, name, value)
end

local function noted(handle)
  return handle:streamInfo():dynamicMetadata():get(SPACE) or {}
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
    return
  end
  local found = known_by(handle, key)
  if not found then
    return refuse(handle, "401", "the key: it is none of this gateway's, or was revoked")
  end
  note(handle, "key", found.name)
  note(handle, "counted", found.name)
  note(handle, "models", found.models)
  note(handle, "limited", found.limited)
end

-- The claims of a JSON Web Token that the filter before has found to be good.
local function from_token(handle)
  local checked = handle:streamInfo():dynamicMetadata():get("envoy.filters.http.jwt_authn")
  local claims = checked and checked.claims
  if not claims or type(claims.sub) ~= "string" or claims.sub == "" then
    return nil
  end
  local models = claims[MODELS_CLAIM] or DEFAULT_MODELS
  if type(models) == "string" then
    local list = {}
    for each in models:gmatch("[^%s,]+") do
      list[#list + 1] = each
    end
    models = list
  end
  local printable = claims.sub:gsub("[^%w._@:|/+-]", "_")
  return "jwt:" .. sub(printable, 1, 128), type(models) == "table" and models or {}
end

local function holds(models, wanted)
  for _, each in pairs(models) do
    if each == wanted or each == EVERY then
      return true
    end
  end
  return false
end

local function extracted(handle)
  local fields = handle:streamInfo():dynamicMetadata():get("envoy.filters.http.grpc_field_extraction") or {}
  local names = fields.model_name or fields.name
  return names and names[1] or ""
end

-- The model that a request names, EVERY where it means all, and "" where it means none.
local function model_of(handle, route)
  if route == "grpc-model" then
    local name = extracted(handle)
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

local function admit(handle)
  local encoding = handle:headers():get("grpc-encoding")
  if encoding and encoding ~= "identity" then
    return refuse(handle, "400", "grpc-encoding: wanted identity, send messages as they are")
  end
  local who = noted(handle)
  local name, models = who.key, who.models
  if not name and ACCEPTS_TOKENS then
    name, models = from_token(handle)
    if name then
      note(handle, "key", name)
      note(handle, "counted", "jwt")
    end
  end
  if not name then
    return refuse(handle, "401", "no key or token: wanted one")
  end
  local route = handle:streamInfo():routeName()
  if route == "grpc-stream" and who.limited then
    return refuse(handle, "403", "streams: wanted a key without a rate, for one has any number of requests")
  end
  local model = model_of(handle, route)
  local served = model ~= "" and handle:metadata():get(model)
  -- What is measured is counted for each name: a caller must not be able to make them up.
  note(handle, "model", model == EVERY and "all" or model == "" and "none" or served and model or "unknown")
  if model ~= "" and not holds(models, model) then
    local what = model == EVERY and "streams and all models at once: wanted a key for all models"
      or "this model: wanted a key that may use it"
    return refuse(handle, "403", what)
  end
  note(handle, "admitted", true)
  if served == SPLIT then
    choose(handle)
  end
end

function envoy_on_request(handle)
  if IDENTIFIES then
    identify(handle)
  else
    admit(handle)
  end
end
