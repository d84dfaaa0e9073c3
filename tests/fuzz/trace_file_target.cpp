// Files of recorded requests, as they are, and behind checksums that are right.
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/checksum.hpp"
#include "simulation/formats/ctrace.hpp"
#include "simulation/formats/ctrace_layout.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace cenote::formats::ctrace;
using cenote::simulation::trace;

constexpr reading limits{.full_blocks = false, .limit = 0, .most_bytes = std::uint64_t{64} << 20};

/// A file in memory.
class bytes_at_places final : public placed_bytes {
 public:
  explicit bytes_at_places(cenote::fuzz::bytes_view bytes = {}) : bytes_(bytes.begin(), bytes.end()) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return bytes_.size(); }
  [[nodiscard]] cenote::result<void> read(std::uint64_t offset, std::span<std::byte> target) override {
    if (offset > bytes_.size() || target.size() > bytes_.size() - offset) std::abort();
    std::ranges::copy(std::span(bytes_).subspan(offset, target.size()), target.begin());
    return {};
  }
  [[nodiscard]] cenote::result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset != bytes_.size()) std::abort();
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }

 private:
  cenote::fuzz::bytes bytes_;
};

/// Passes all chains on with few of them in memory; they are those of `whole`, where that could be read.
void pass_file(cenote::fuzz::bytes_view input, const trace* whole) {
  bytes_at_places file(input);
  bytes_at_places blocks;
  bytes_at_places ends;
  std::vector<std::uint32_t> stream;
  const auto outcome = pass_requests(
      file, {.blocks = blocks, .ends = ends, .kept_blocks = 4, .kept_requests = 2, .room = std::uint64_t{16} << 20},
      [&](const trace::arrival& /*request*/, std::span<const std::uint32_t> chain, std::uint64_t /*block_tokens*/) {
        if (whole != nullptr) stream.insert(stream.end(), chain.begin(), chain.end());
        return cenote::result<void>{};
      });
  if (whole == nullptr || (!outcome && outcome.error().code() == cenote::error_code::limit_exceeded)) return;
  if (!outcome || !std::ranges::equal(whole->stream(), stream)) std::abort();
}

/// A file that is read can be written, and is the same when it is read again.
void read_file(cenote::fuzz::bytes_view input) {
  const auto read = decode(input, limits);
  pass_file(input, nullptr);
  if (!read) return;
  const auto written = encode(read->requests, read->facts);
  if (!written) std::abort();
  pass_file(*written, &read->requests);
  const auto again = decode(*written, limits);
  if (!again || !std::ranges::equal(again->requests.stream(), read->requests.stream()) ||
      !std::ranges::equal(again->requests.identities(), read->requests.identities())) {
    std::abort();
  }
  if (!decode(input, {.full_blocks = true, .limit = 3, .most_bytes = limits.most_bytes})) std::abort();
}

template <class T>
void copy_part(cenote::fuzz::bytes& file, std::size_t offset, const T& part) {
  std::memcpy(file.data() + offset, &part, sizeof(part));
}

/// One frame: all tokens, its head's counts, then its bytes before they are packed; all else is made to fit them.
void read_frame(cenote::fuzz::bytes_view input) {
  std::uint64_t tokens = 0;
  frame_head frame;
  if (input.size() < sizeof(tokens) + sizeof(frame)) return;
  std::memcpy(&tokens, input.data(), sizeof(tokens));
  std::memcpy(&frame, input.data() + sizeof(tokens), sizeof(frame));
  const auto raw = input.subspan(sizeof(tokens) + sizeof(frame));
  cenote::fuzz::bytes packed(::ZSTD_compressBound(raw.size()));
  packed.resize(::ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), 1));
  frame.raw = static_cast<std::uint32_t>(raw.size());
  frame.packed = static_cast<std::uint32_t>(packed.size());
  frame.checksum = cenote::checksum_of(packed);
  file_header head{.block_tokens = 16,
                   .requests = frame.requests,
                   .references = frame.references,
                   .blocks = frame.blocks,
                   .tokens = tokens,
                   .flags = flag_identities};
  head.checksum = cenote::checksum_of(&head, offsetof(file_header, checksum));
  const file_trailer trailer{.frames = 1, .checksum = cenote::checksum_of(&frame, sizeof(frame))};
  cenote::fuzz::bytes file(sizeof(head) + 2 * sizeof(frame) + packed.size() + sizeof(trailer));
  copy_part(file, 0, head);
  copy_part(file, sizeof(head), frame);
  std::ranges::copy(packed, file.begin() + sizeof(head) + sizeof(frame));
  copy_part(file, file.size() - sizeof(trailer) - sizeof(frame), frame);
  copy_part(file, file.size() - sizeof(trailer), trailer);
  read_file(file);
}

constexpr std::array<cenote::fuzz::codec, 2> codecs{read_file, read_frame};

void write_seeds() {
  trace requests(16);
  requests.add({.time_ms = 5, .tokens = 40}, std::array<std::uint64_t, 3>{1, 2, 3});
  requests.add({.time_ms = 9, .tokens = 64, .session = 1}, std::array<std::uint64_t, 4>{1, 2, 9, ~std::uint64_t{0}});
  requests.add({.tokens = 48, .access = cenote::simulation::chain_access::read}, std::array<std::uint64_t, 3>{3, 9, 1});
  requests.add({.tokens = 0, .instance = 1}, {});
  for (const facts& each : {facts{.lines = 4, .left_out = 1}, facts{.anonymised = true, .seed = 7}}) {
    const auto file = encode(requests, each);
    if (!file) std::abort();
    cenote::fuzz::write_seed(0, *file);
    frame_head frame;
    std::memcpy(&frame, file->data() + sizeof(file_header), sizeof(frame));
    cenote::fuzz::bytes input(sizeof(std::uint64_t) + sizeof(frame) + frame.raw);
    copy_part(input, 0, std::uint64_t{40 + 64 + 48});
    copy_part(input, sizeof(std::uint64_t), frame);
    ::ZSTD_decompress(input.data() + input.size() - frame.raw, frame.raw,
                      file->data() + sizeof(file_header) + sizeof(frame), frame.packed);
    cenote::fuzz::write_seed(1, input);
  }
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
