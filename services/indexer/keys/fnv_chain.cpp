#include "services/indexer/keys/fnv_chain.hpp"

#include <algorithm>

#include "services/indexer/keys/cbor_head.hpp"

namespace cenote::indexer {

namespace {

constexpr std::uint64_t fnv64_prime = 0x100'0000'01b3;
constexpr std::uint64_t fnv64_prime_squared = fnv64_prime * fnv64_prime;  // a zero byte only multiplies
constexpr std::uint32_t fnv32_basis = 0x811c'9dc5;
constexpr std::uint32_t fnv32_prime = 0x0100'0193;

[[nodiscard]] constexpr std::uint64_t with_byte(std::uint64_t state, std::uint64_t byte) noexcept {
  return (state ^ byte) * fnv64_prime;
}

[[nodiscard]] std::uint64_t with_head(std::uint64_t state, cbor_major major, std::uint64_t argument) noexcept {
  const cbor_head_bytes head = encode_head(major, argument);
  for (unsigned i = 0; i < head.size; ++i) state = with_byte(state, head.bytes[i]);
  return state;
}

/// Tokens below 256 and from 2^24 on.
[[nodiscard]] std::uint64_t with_rare_token(std::uint64_t state, std::uint32_t token) noexcept {
  if (token < 24) return with_byte(state, token);
  if (token < 256) return with_byte(with_byte(state, 0x18), token);
  state = with_byte(with_byte(state, 0x1a), token >> 24);
  state = with_byte(with_byte(state, token >> 16 & 0xffU), token >> 8 & 0xffU);
  return with_byte(state, token & 0xffU);
}

/// Three bytes (0x19 and two) or five (0x1a, a zero, three) without a branch: vocabularies lie on both sides of 2^16.
/// The zero and the byte before it take one multiplication.
[[nodiscard]] inline std::uint64_t with_token(std::uint64_t state, std::uint32_t token) noexcept {
  if (token - 256U >= (1U << 24) - 256U) [[unlikely]]
    return with_rare_token(state, token);
  const std::uint64_t narrow = (state ^ 0x19U) * fnv64_prime;
  const std::uint64_t wide = (((state ^ 0x1aU) * fnv64_prime_squared) ^ (token >> 16)) * fnv64_prime;
  state = token >> 16 == 0 ? narrow : wide;
  return with_byte(with_byte(state, token >> 8 & 0xffU), token & 0xffU);
}

/// The head of a list of three, and a parent. All but one of 2^32 parents take nine bytes.
[[nodiscard]] inline std::uint64_t with_parent(std::uint64_t parent) noexcept {
  constexpr std::uint64_t list_state = with_byte(fnv64_basis, 0x83);
  if (parent <= 0xffff'ffff) [[unlikely]]
    return with_head(list_state, cbor_major::unsigned_number, parent);
  std::uint64_t state = with_byte(list_state, 0x1b);
  for (int shift = 56; shift >= 0; shift -= 8) state = with_byte(state, parent >> shift & 0xffU);
  return state;
}

/// [parent, tokens, and the place of the extra value.
[[nodiscard]] std::uint64_t with_tokens(std::uint64_t parent, std::span<const std::uint32_t> tokens) noexcept {
  std::uint64_t state = with_parent(parent);
  state = with_head(state, cbor_major::list, tokens.size());
  for (const std::uint32_t token : tokens) state = with_token(state, token);
  return state;
}

[[nodiscard]] std::uint64_t with_extra(std::uint64_t state, std::span<const std::byte> extra) noexcept {
  return extra.empty() ? with_byte(state, 0xf6) : fnv64(extra, state);
}

/// Calls `use` with the text of each element that llm-d takes for the hash of an item.
template <class Use>
void for_each_hash(extra_key_elements extra, Use use) noexcept {
  for (auto rest = extra.bytes; !rest.empty();) {
    const std::size_t size = item_size(rest);
    if (size == 0) return;
    auto text = rest.first(size);
    cbor_head head = decode_head(text);
    if (head.major == cbor_major::list && head.argument > 0) {
      text = text.subspan(head.size);
      head = decode_head(text);
    }
    if (head.major == cbor_major::text) use(text.subspan(head.size, static_cast<std::size_t>(head.argument)));
    rest = rest.subspan(size);
  }
}

}  // namespace

std::uint64_t fnv64(std::span<const std::byte> bytes, std::uint64_t state) noexcept {
  for (const std::byte each : bytes) state = with_byte(state, static_cast<std::uint8_t>(each));
  return state;
}

std::uint32_t fnv32(std::string_view text) noexcept {
  std::uint32_t state = fnv32_basis;
  for (const char each : text) state = (state ^ static_cast<std::uint8_t>(each)) * fnv32_prime;
  return state;
}

std::uint64_t fnv_chain::root(std::string_view model) const noexcept {
  const std::uint64_t state = with_byte(with_parent(initial_), 0xf6);
  return fnv64(model, with_head(state, cbor_major::text, model.size()));
}

std::uint64_t fnv_chain::key(std::uint64_t parent, std::span<const std::uint32_t> tokens,
                             std::span<const std::byte> extra) noexcept {
  return with_extra(with_tokens(parent, tokens), extra);
}

std::uint64_t fnv_chain::key_without_tokens(std::uint64_t parent, std::span<const std::byte> extra) noexcept {
  return with_extra(with_byte(with_parent(parent), 0xf6), extra);
}

std::uint64_t fnv_chain::key(std::uint64_t parent, std::span<const std::uint32_t> tokens,
                             extra_key_elements extra) noexcept {
  std::uint64_t state = with_tokens(parent, tokens);
  std::uint64_t hashes = 0;
  for_each_hash(extra, [&](std::span<const std::byte>) { ++hashes; });
  if (hashes == 0) return with_byte(state, 0xf6);
  state = with_head(state, cbor_major::list, hashes);
  for_each_hash(extra, [&](std::span<const std::byte> hash) {
    state = with_head(state, cbor_major::map, 1);
    state = fnv64("Hash", with_head(state, cbor_major::text, 4));
    state = fnv64(hash, with_head(state, cbor_major::text, hash.size()));
  });
  return state;
}

}  // namespace cenote::indexer
