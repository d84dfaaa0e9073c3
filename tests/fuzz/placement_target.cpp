// Batches of events on their way into an index: whatever comes, the bound of memory holds and a clear leaves nothing.
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "services/indexer/placement/payload_placer.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace cenote::indexer;
using cenote::fuzz::bytes_view;
using nlohmann::json;

constexpr std::size_t memory = std::size_t{2} << 20U;
constexpr std::uint32_t whole = 4;  // tokens of a block, where all have one size

/// An index and its publishers, two engines and their node; batches are applied in turn.
class small_index {
 public:
  explicit small_index(std::uint32_t block_tokens)
      : keys_(key_chain::xxh3, "fuzz"),
        index_({.memory = memory, .members = 64, .repeats = 256, .seed = 1}),
        payloads_(index_, keys_, block_tokens) {
    for (publisher_id number = 1; number <= publishers; ++number) open(number);
  }

  /// Pieces of the input, each behind a byte that names its publisher and two for its length.
  void apply(bytes_view input) {
    while (input.size() > 3) {
      const publisher_id number = 1 + static_cast<unsigned>(input[0]) % publishers;
      const std::size_t length = static_cast<unsigned>(input[1]) | static_cast<unsigned>(input[2]) << 8U;
      const auto payload = input.subspan(3, std::min(length, input.size() - 3));
      (void)payloads_.apply(number, topic_of(number), payload);
      if (index_.bytes() > memory) std::abort();
      input = input.subspan(3 + payload.size());
    }
    payloads_.blocks().advance({});
    for (publisher_id number = 1; number <= publishers; ++number) payloads_.blocks().clear(number);
    while (!index_.sweep(1000)) {
    }
    payloads_.sweep();
    for (publisher_id number = 1; number <= publishers; ++number) {
      if (!payloads_.blocks().find(number)->holders.empty()) std::abort();
    }
    if (index_.figures().sets != 0 || index_.figures().repeats != 0) std::abort();
  }

 private:
  static constexpr publisher_id publishers = 3;

  static std::string topic_of(publisher_id number) {
    return number == publishers ? "kv@node:n@m" : "kv@p" + std::to_string(number) + "@m";
  }
  void open(publisher_id number) {
    publisher_identity identity;
    identity.name = std::to_string(number);
    identity.node = number == publishers ? "" : "n";
    complete_identity(identity, topic_of(number));
    if (!payloads_.open(number, identity)) std::abort();
  }

  token_processor keys_;
  forest index_;
  payload_placer payloads_;
};

void apply_in_own_sizes(bytes_view input) {
  static small_index index(0);
  index.apply(input);
}

void apply_in_one_size(bytes_view input) {
  static small_index index(whole);
  index.apply(input);
}

constexpr std::array<cenote::fuzz::codec, 2> codecs{apply_in_own_sizes, apply_in_one_size};

void append(std::vector<std::byte>& input, publisher_id number, const json& events) {
  const auto payload = json::to_msgpack(json{1.5, events, 0});
  for (const std::size_t each : {std::size_t{number} - 1, payload.size() & 0xff, payload.size() >> 8U}) {
    input.push_back(static_cast<std::byte>(each));
  }
  const auto bytes = std::as_bytes(std::span(payload));
  input.insert(input.end(), bytes.begin(), bytes.end());
}

json stored(const json& hashes, std::size_t size, const json& parent = nullptr, const char* medium = "GPU") {
  std::vector<unsigned> tokens;
  for (unsigned i = 0; i < hashes.size() * size; ++i) tokens.push_back(i);
  return {{"type", "BlockStored"}, {"block_hashes", hashes}, {"parent_block_hash", parent},
          {"token_ids", tokens},   {"block_size", size},     {"medium", medium}};
}

json removed(const json& hashes) {
  return {{"type", "BlockRemoved"}, {"block_hashes", hashes}, {"medium", "GPU"}};
}

void write_seeds() {
  for (const std::size_t size : {2U, 4U, 8U}) {
    std::vector<std::byte> input;
    append(input, 1, {stored({1, 2, 3, 4}, size), stored({5}, size, 4), removed({2})});
    append(input, 2, {stored({1, 2, 3, 4}, size), {{"type", "AllBlocksCleared"}}, stored({9}, size, nullptr, "CPU")});
    append(input, 3,
           {{{"type", "BlockStored"}, {"block_hashes", {1, 2}}, {"medium", "CPU"}},
            {{"type", "BlockRemoved"}, {"block_hashes", {1}}, {"medium", "CPU"}}});
    for (std::size_t codec = 0; codec < codecs.size(); ++codec) cenote::fuzz::write_seed(codec, input);
  }
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
