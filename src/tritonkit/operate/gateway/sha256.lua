-- SHA-256 (FIPS 180-4) in Lua with LuaJIT's bit operations: Envoy has no hash for its filters to call.
-- The first part of the program that Envoy runs; admission.lua follows. Texts are short: keys.

local band, bnot, bxor, ror, rshift = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift
local tobit, tohex = bit.tobit, bit.tohex
local byte, char, rep, sub = string.byte, string.char, string.rep, string.sub

-- The first 32 bits of the fractions of the square and cube roots of the first primes, as the standard has them.
local function roots()
  local primes, squares, cubes, number = {}, {}, {}, 2
  while #primes < 64 do
    local prime = true
    for _, each in ipairs(primes) do
      if number % each == 0 then
        prime = false
        break
      end
    end
    if prime then
      primes[#primes + 1] = number
    end
    number = number + 1
  end
  for k, prime in ipairs(primes) do
    squares[k] = tobit(math.floor((prime ^ (1 / 2) % 1) * 2 ^ 32))
    cubes[k] = tobit(math.floor((prime ^ (1 / 3) % 1) * 2 ^ 32))
  end
  return squares, cubes
end

local FIRST, CONSTANTS = roots()

local function padded(text)
  local bits = #text * 8
  local zeros = (55 - #text) % 64
  local length = char(0, 0, 0, 0, rshift(bits, 24) % 256, rshift(bits, 16) % 256, rshift(bits, 8) % 256, bits % 256)
  return text .. "\128" .. rep("\0", zeros) .. length
end

local function schedule(text, at, words)
  for k = 1, 16 do
    local a, b, c, d = byte(text, at + 4 * k - 4, at + 4 * k - 1)
    words[k] = tobit(a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d)
  end
  for k = 17, 64 do
    local v, w = words[k - 15], words[k - 2]
    local s0 = bxor(ror(v, 7), ror(v, 18), rshift(v, 3))
    local s1 = bxor(ror(w, 17), ror(w, 19), rshift(w, 10))
    words[k] = tobit(words[k - 16] + s0 + words[k - 7] + s1)
  end
end

local function compress(state, words)
  local a, b, c, d = state[1], state[2], state[3], state[4]
  local e, f, g, h = state[5], state[6], state[7], state[8]
  for k = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local choice = bxor(band(e, f), band(bnot(e), g))
    local t1 = tobit(h + s1 + choice + CONSTANTS[k] + words[k])
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local majority = bxor(band(a, b), band(a, c), band(b, c))
    local t2 = tobit(s0 + majority)
    h, g, f, e, d, c, b, a = g, f, e, tobit(d + t1), c, b, a, tobit(t1 + t2)
  end
  state[1], state[2], state[3], state[4] = tobit(state[1] + a), tobit(state[2] + b), tobit(state[3] + c), tobit(state[4] + d)
  state[5], state[6], state[7], state[8] = tobit(state[5] + e), tobit(state[6] + f), tobit(state[7] + g), tobit(state[8] + h)
end

-- 64 hexadecimal digits.
local function sha256(text)
  local whole, words, state = padded(text), {}, {}
  for k = 1, 8 do
    state[k] = FIRST[k]
  end
  for at = 1, #whole, 64 do
    schedule(whole, at, words)
    compress(state, words)
  end
  for k = 1, 8 do
    state[k] = tohex(state[k])
  end
  return table.concat(state)
end
