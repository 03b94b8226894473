-- The first part of the program that Envoy runs (rest.py joins it and rest.lua, behind a line that defines
-- LIMITS): a reader of JSON that keeps nothing. Triton's own recurses into brackets until its stack ends.
--
-- Places in `text` count from 1. A function `after_...` takes a place and gives the next one behind what
-- it read; `refuse` ends the reading. Loops go byte by byte: LuaJIT compiles them, and not patterns.

local byte, sub = string.byte, string.sub

local TAB, NEWLINE, RETURN, SPACE = 9, 10, 13, 32
local QUOTE, PLUS, COMMA, MINUS, DOT, ZERO, NINE, COLON = 34, 43, 44, 45, 46, 48, 57, 58
local OPEN_LIST, BACKSLASH, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 92, 93, 123, 125
local LOWER_E, LOWER_U, UPPER_E, UPPER_I = 101, 117, 69, 73

local text -- one request is read at a time, and without a pause

-- What ends the reading: `place` in the request as people call it.
local function refuse(place, found, wanted)
  error({ message = place .. ": found " .. found .. ", wanted " .. wanted }, 0)
end

local function malformed(at, wanted)
  local found = at > #text and "the end of it" or "something else"
  refuse("the request's JSON, byte " .. at, found, wanted)
end

local function kind_of(c)
  if not c then
    return "nothing"
  elseif c == OPEN_LIST then
    return "a list"
  elseif c == OPEN_OBJECT then
    return "an object"
  end
  return c == QUOTE and "a string" or "something else"
end

local function after_space(at)
  local c = byte(text, at)
  while c == SPACE or c == NEWLINE or c == RETURN or c == TAB do
    at = at + 1
    c = byte(text, at)
  end
  return at, c
end

local function hexadecimal(at)
  local value = 0
  for place = at, at + 3 do
    local c = byte(text, place) or 0
    if c >= ZERO and c <= NINE then
      value = value * 16 + c - ZERO
    elseif c >= 65 and c <= 70 then
      value = value * 16 + c - 55
    elseif c >= 97 and c <= 102 then
      value = value * 16 + c - 87
    else
      malformed(place, "a hexadecimal digit")
    end
  end
  return value
end

local SIMPLE_ESCAPES = {}
for place = 1, 8 do
  SIMPLE_ESCAPES[byte('"\\/bfnrt', place)] = true
end

local function after_escape(at)
  local c = byte(text, at + 1)
  if SIMPLE_ESCAPES[c] then
    return at + 2
  end
  if c ~= LOWER_U then
    malformed(at, "an escape of JSON")
  end
  local code = hexadecimal(at + 2)
  if code < 0xD800 or code > 0xDFFF then
    return at + 6
  end
  if code < 0xDC00 and byte(text, at + 6) == BACKSLASH and byte(text, at + 7) == LOWER_U then
    local second = hexadecimal(at + 8)
    if second >= 0xDC00 and second <= 0xDFFF then
      return at + 12
    end
  end
  malformed(at, "both halves of a surrogate pair")
end

-- `at` is behind the opening quote. The string itself comes too, unless it holds an escape.
local function after_string(at)
  local first, plain = at, true
  local c = byte(text, at)
  while c ~= QUOTE do
    if c == BACKSLASH then
      at, plain = after_escape(at), false
    elseif not c or c < SPACE then
      malformed(at, "the rest of a string")
    else
      at = at + 1
    end
    c = byte(text, at)
  end
  return at + 1, plain, first
end

local function after_digits(at)
  local first, value = at, 0
  local c = byte(text, at)
  while c and c >= ZERO and c <= NINE do
    value = value * 10 + (c - ZERO)
    at = at + 1
    c = byte(text, at)
  end
  if at == first then
    malformed(at, "a value of JSON")
  end
  return at, c, value
end

-- Also the value, and whether it is written as a whole number.
local function after_number(at, c)
  local sign, value = 1, 0
  if c == MINUS then
    sign, at = -1, at + 1
  end
  if byte(text, at) == ZERO then
    at = at + 1
    c = byte(text, at)
  else
    at, c, value = after_digits(at)
  end
  local whole = c ~= DOT and c ~= LOWER_E and c ~= UPPER_E
  if c == DOT then
    at, c = after_digits(at + 1)
  end
  if c == LOWER_E or c == UPPER_E then
    c = byte(text, at + 1)
    at = after_digits((c == PLUS or c == MINUS) and at + 2 or at + 1)
  end
  return at, sign * value, whole
end

-- The last three are Python's and Triton's, not JSON's.
local WORDS = {
  { "true", "boolean" }, { "false", "boolean" }, { "null", "null" },
  { "NaN", "real" }, { "Infinity", "real" }, { "-Infinity", "real" },
}

local function after_word(at)
  for place = 1, #WORDS do
    local word = WORDS[place][1]
    if sub(text, at, at + #word - 1) == word then
      return at + #word, WORDS[place][2]
    end
  end
  malformed(at, "a value of JSON")
end

-- A member's name and the colon. Also where the name begins and ends; nil where it holds an escape.
local function after_key(at)
  local c, plain, first
  at, c = after_space(at)
  if c ~= QUOTE then
    malformed(at, "the name of a member")
  end
  at, plain, first = after_string(at + 1)
  local last = at - 2
  at, c = after_space(at)
  if c ~= COLON then
    malformed(at, "a colon")
  end
  return at + 1, plain and first, last
end

local function new_tally()
  return { object = 0, string = 0, whole = 0, real = 0, boolean = 0, null = 0, least = 0, most = 0 }
end

local function after_scalar(at, c, tally)
  if c == QUOTE then
    at = after_string(at + 1)
    tally.string = tally.string + 1
  elseif c and (c == MINUS and byte(text, at + 1) ~= UPPER_I or c >= ZERO and c <= NINE) then
    local value, whole
    at, value, whole = after_number(at, c)
    if whole then
      tally.whole = tally.whole + 1
      if value < tally.least then
        tally.least = value
      end
      if value > tally.most then
        tally.most = value
      end
    else
      tally.real = tally.real + 1
    end
  else
    local kind
    at, kind = after_word(at)
    tally[kind] = tally[kind] + 1
  end
  return at
end

-- Behind a value: its comma, or the brackets that end with it. Also how many are open then.
local function after_ends(at, is_object, level)
  while level > 0 do
    local c
    at, c = after_space(at)
    at = at + 1
    if c == COMMA then
      return is_object[level] and after_key(at) or at, level
    elseif c ~= (is_object[level] and CLOSE_OBJECT or CLOSE_LIST) then
      malformed(at - 1, is_object[level] and "a comma or }" or "a comma or ]")
    end
    level = level - 1
  end
  return at, level
end

-- Any value, itself `depth` brackets deep; `tally` counts what is in it, by kind, lists left out.
-- No recursion, or the caller would decide how much stack it takes.
local function after_value(at, depth, tally)
  local is_object, level = {}, 0
  repeat
    local c
    at, c = after_space(at)
    if c == OPEN_LIST or c == OPEN_OBJECT then
      level = level + 1
      if depth + level > LIMITS.max_json_depth then
        refuse("the request's JSON, byte " .. at, "one more bracket in another",
          LIMITS.max_json_depth .. " levels at most")
      end
      is_object[level] = c == OPEN_OBJECT
      tally.object = tally.object + (is_object[level] and 1 or 0)
      local inside
      inside, c = after_space(at + 1)
      if c == (is_object[level] and CLOSE_OBJECT or CLOSE_LIST) then
        at, level = after_ends(inside, is_object, level)
      else
        at = is_object[level] and after_key(inside) or inside
      end
    else
      at, level = after_ends(after_scalar(at, c, tally), is_object, level)
    end
  until level == 0
  return at
end

-- Members of the object at `at`, which is `place` for people. `each` gets a name and where its value is,
-- gives the place behind it, or nil for a member that only has to be JSON. Gives the names found, too.
local function after_object(at, depth, place, each)
  local c, first, last
  at, c = after_space(at)
  if c ~= OPEN_OBJECT then
    refuse(place, kind_of(c), "an object")
  end
  local found, count = {}, 0
  at, c = after_space(at + 1)
  while c ~= CLOSE_OBJECT do
    at, first, last = after_key(at)
    count = count + 1
    if not first then
      -- It could be the second spelling of a name that means something.
      refuse(place, "an escape in the name of a member", "the characters themselves")
    elseif count > LIMITS.max_members then
      refuse(place, "more members", LIMITS.max_members .. " at most")
    end
    local name = sub(text, first, last)
    if found[name] then
      refuse(place, "a member twice", "each once")
    end
    found[name] = true
    at = each(name, at) or after_value(at, depth, new_tally())
    at, c = after_space(at)
    if c == COMMA then
      at = after_space(at + 1)
    elseif c ~= CLOSE_OBJECT then
      malformed(at, "a comma or }")
    end
  end
  return at + 1, found
end

-- Items of the list at `at`, `most` of them at most. `each` gets where one is and how it is called.
local function after_list(at, place, most, each)
  local c
  at, c = after_space(at)
  if c ~= OPEN_LIST then
    refuse(place, kind_of(c), "a list")
  end
  local count = 0
  at, c = after_space(at + 1)
  while c ~= CLOSE_LIST do
    if count == most then
      refuse(place, "more items", most .. " at most")
    end
    at = each(at, place .. "[" .. count .. "]")
    count = count + 1
    at, c = after_space(at)
    if c == COMMA then
      at = after_space(at + 1)
    elseif c ~= CLOSE_LIST then
      malformed(at, "a comma or ]")
    end
  end
  return at + 1
end
