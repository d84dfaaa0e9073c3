#include "services/indexer/keys/token_processor.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <string>

#include "core/checksum.hpp"
#include "core/random_number.hpp"

namespace cenote::indexer {

namespace {

static_assert(std::endian::native == std::endian::little, "tokens are hashed as little-endian words");

/// Keeps extra keys from being taken for a block of tokens with the same bytes.
constexpr std::uint64_t extra_key_mark = 0x9e37'79b9'7f4a'7c15;

/// XXH3-64; short runs are hashed in place, long ones by the widest instructions of the processor.
[[nodiscard]] inline std::uint64_t digest(const void* data, std::size_t size, std::uint64_t seed) noexcept {
  constexpr std::size_t longest_short_input = 240;  // of XXH3
  return size <= longest_short_input ? XXH3_64bits_withSeed(data, size, seed) : checksum_of(data, size, seed);
}

/// The key of a block, of each chain: without extra keys, and with some.
struct xxh3_key {
  static std::uint64_t plain(std::uint64_t parent, std::span<const std::uint32_t> tokens) noexcept {
    return digest(tokens.data(), tokens.size_bytes(), parent);
  }
  static std::uint64_t marked(std::uint64_t parent, std::span<const std::uint32_t> tokens,
                              extra_key_elements extra) noexcept {
    return plain(digest(extra.bytes.data(), extra.bytes.size(), parent ^ extra_key_mark), tokens);
  }
};

struct fnv_key {
  static std::uint64_t plain(std::uint64_t parent, std::span<const std::uint32_t> tokens) noexcept {
    return fnv_chain::key(parent, tokens);
  }
  static std::uint64_t marked(std::uint64_t parent, std::span<const std::uint32_t> tokens,
                              extra_key_elements extra) noexcept {
    return fnv_chain::key(parent, tokens, extra);
  }
};

template <class Key>
std::size_t write_chain(std::uint64_t parent, const token_run& run, const key_space& space,
                        std::span<std::uint64_t> keys) noexcept {
  const std::size_t size = space.block_tokens;
  const std::size_t count = std::min(run.tokens.size() / size, keys.size());
  const std::size_t lists = run.extra_keys.blocks.size();
  for (std::size_t block = 0; block < count; ++block) {
    const auto tokens = run.tokens.subspan(block * size, size);
    extra_key_elements extra;
    if (block < lists) extra = elements_of(run.extra_keys.list(block), space.lora_name);
    parent = extra.count == 0 ? Key::plain(parent, tokens) : Key::marked(parent, tokens, extra);
    keys[block] = parent;
  }
  return count;
}

}  // namespace

token_processor::token_processor(key_chain chain, std::string_view seed) noexcept
    : chain_(chain), seed_(digest(seed.data(), seed.size(), 0)), fnv_(seed) {}

token_processor token_processor::seeded(key_chain chain, std::string_view seed) {
  if (chain == key_chain::xxh3 && seed.empty()) return {chain, std::to_string(random_number())};
  return {chain, seed};
}

std::uint64_t token_processor::root_of(const key_space& space) const noexcept {
  const std::string_view name = space.name();
  if (chain_ == key_chain::fnv64_cbor) return fnv_.root(name);
  const std::uint64_t sized = digest(&space.block_tokens, sizeof(space.block_tokens), seed_);
  return digest(name.data(), name.size(), sized);
}

std::size_t token_processor::write_keys(const token_run& run, const key_space& space,
                                        std::span<std::uint64_t> keys) const noexcept {
  if (space.block_tokens == 0) return 0;
  const std::uint64_t parent = run.parent ? *run.parent : root_of(space);
  return chain_ == key_chain::xxh3 ? write_chain<xxh3_key>(parent, run, space, keys)
                                   : write_chain<fnv_key>(parent, run, space, keys);
}

result<void> token_processor::keys_of(const token_run& run, const key_space& space,
                                      std::vector<std::uint64_t>& keys) const {
  keys.clear();
  if (space.block_tokens == 0) return fail(error_code::invalid_argument, "a block has 0 tokens; it has 1 at least");
  const std::size_t count = run.tokens.size() / space.block_tokens;
  if (!run.extra_keys.blocks.empty() && run.extra_keys.blocks.size() != count) {
    return fail(error_code::invalid_argument, "extra keys for " + std::to_string(run.extra_keys.blocks.size()) +
                                                  " blocks, where " + std::to_string(run.tokens.size()) +
                                                  " tokens are " + std::to_string(count) + " blocks of " +
                                                  std::to_string(space.block_tokens));
  }
  keys.resize(count);
  write_keys(run, space, keys);
  return {};
}

}  // namespace cenote::indexer
