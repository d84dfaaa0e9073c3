// Session memory in which the other side wrote anything: the rings' ends, and what entries carry.
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "memory/group_terms.hpp"
#include "memory/prefetch_terms.hpp"
#include "memory/session_memory.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace cenote::memory;
using cenote::fuzz::bytes_view;

constexpr std::uint32_t pin_slots = 8;

struct alignas(64) session_bytes {
  std::array<std::byte, session_memory::segment_bytes(pin_slots)> all;
};

/// Header, then entries from `offset` on; the rest is zero.
session_memory written(bytes_view input, std::uint64_t offset) {
  static const auto memory = std::make_unique<session_bytes>();
  memory->all.fill(std::byte{0});
  const auto header = input.first(std::min(input.size(), sizeof(session_header)));
  std::ranges::copy(header, memory->all.begin());
  const auto entries = input.subspan(header.size());
  const std::size_t room = memory->all.size() - offset;
  std::ranges::copy(entries.first(std::min(entries.size(), room)), memory->all.begin() + static_cast<long>(offset));
  return {memory->all.data(), pin_slots};
}

void read_submissions(bytes_view input) {
  worker_rings rings(written(input, session_memory::submissions_offset));
  const auto waiting = rings.waiting();
  if (waiting && *waiting > session_memory::submissions) std::abort();
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(waiting.value_or(0), 64); ++i) {
    const submission entry = rings.peek(i);
    if (join_terms::of(entry).name.size() > max_rank_group_name) std::abort();
    static_cast<void>(agree_terms::of(entry));
    static_cast<void>(prefetch_terms::of(entry));
  }
  rings.advance(waiting.value_or(0));
  const auto room = rings.completion_room();
  if (room && *room > session_memory::completions) std::abort();
}

void read_completions(bytes_view input) {
  client_rings rings(written(input, session_memory::completions_offset));
  std::string text;
  for (int i = 0; i < 64; ++i) {
    const auto entry = rings.pop();
    if (!entry) break;
    refusal_text::append(text, *entry);
  }
  if (text.size() > refusal_text::most + handed_keys::piece_bytes) std::abort();
}

constexpr std::array<cenote::fuzz::codec, 2> codecs{read_submissions, read_completions};

/// Header with both tails at 3, then three entries of each operation's form.
void write_seeds() {
  session_bytes memory{};
  const session_memory made(memory.all.data(), pin_slots);
  client_rings client(made);
  submission entry;
  join_terms{.name = "ranks", .rank = 0, .size = 2, .patience = {}, .handle = 1, .epoch = 1}.pack(entry);
  client.push(entry);
  agree_terms{.question = 1, .length = 2, .timeout = {}, .handle = 1, .epoch = 1}.pack(entry);
  client.push(entry);
  prefetch_terms{}.pack(entry);
  client.push(entry);
  static_cast<void>(client.publish());
  worker_rings worker(made);
  refusal_text::pack("the node refuses it", 1, [&](const completion& piece) { worker.push(piece); });
  static_cast<void>(worker.publish());
  const auto seed = [&](std::size_t number, std::uint64_t offset, std::size_t size) {
    cenote::fuzz::bytes input(sizeof(session_header) + size);
    std::memcpy(input.data(), memory.all.data(), sizeof(session_header));
    std::memcpy(input.data() + sizeof(session_header), memory.all.data() + offset, size);
    cenote::fuzz::write_seed(number, input);
  };
  seed(0, session_memory::submissions_offset, 3 * sizeof(submission));
  seed(1, session_memory::completions_offset, 3 * sizeof(completion));
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
