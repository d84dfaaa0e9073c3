#include "tiers/nvme/removal_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/checksum.hpp"
#include "tiers/nvme/io.hpp"

namespace cenote::nvme {

namespace {

constexpr std::uint64_t log_magic = 0x32676c6d72746e63;   // "cntrmlg2"
constexpr std::uint64_t mark_magic = 0x6b72616d71746e63;  // "cntqmark"

struct place_header {
  std::uint64_t magic = log_magic;
  std::uint64_t owner = 0;
  std::uint64_t sequence = 0;
  std::uint64_t size = 0;   // of the set behind it
  std::uint64_t check = 0;  // of the fields before it, and of the set
};
static_assert(sizeof(place_header) + removal_set::max_bytes <= removal_log::place_bytes);
static_assert(removal_log::place_bytes % sector_bytes == 0);

struct freed {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }  // NOLINT(cppcoreguidelines-no-malloc)
};
using aligned_bytes = std::unique_ptr<std::byte, freed>;

/// Zeroed memory that direct I/O takes.
aligned_bytes aligned(std::size_t bytes) {
  aligned_bytes made(static_cast<std::byte*>(std::aligned_alloc(sector_bytes, bytes)));
  std::memset(made.get(), 0, bytes);
  return made;
}

std::uint64_t check_of(const place_header& head, std::span<const std::byte> set) {
  return checksum_of(set, checksum_of(&head, offsetof(place_header, check)));
}

/// The whole of `memory`; calls that moved less are continued.
template <class Call>
result<void> whole(Call call, const char* name, std::span<std::byte> memory, std::uint64_t offset) {
  while (!memory.empty()) {
    const auto moved = call(memory, static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return fail_errno(name, "the log of removals");
    if (moved == 0) return fail_errno(EIO, name, "the log of removals");
    memory = memory.subspan(static_cast<std::size_t>(moved));
    offset += static_cast<std::uint64_t>(moved);
  }
  return {};
}

}  // namespace

std::vector<std::byte> placed_removals::encode() const {
  const auto bytes = set.encode();
  place_header head{.owner = owner, .sequence = sequence, .size = bytes.size()};
  head.check = check_of(head, bytes);
  std::vector<std::byte> all(sizeof head + bytes.size());
  std::memcpy(all.data(), &head, sizeof head);
  std::ranges::copy(bytes, all.begin() + sizeof head);
  return all;
}

std::optional<placed_removals> placed_removals::decode(std::span<const std::byte> place, std::uint64_t owner) {
  place_header head;
  std::memcpy(&head, place.data(), sizeof head);
  if (head.magic != log_magic || head.owner != owner || head.size > place.size() - sizeof head) return std::nullopt;
  const auto bytes = place.subspan(sizeof head, head.size);
  if (head.check != check_of(head, bytes)) return std::nullopt;
  auto set = removal_set::decode(bytes);
  if (!set) return std::nullopt;
  return placed_removals{std::move(*set), head.owner, head.sequence};
}

result<removal_set> removal_log::load() {
  removal_set newest;
  const auto memory = aligned(place_bytes);
  const std::span place(memory.get(), place_bytes);
  for (const std::uint64_t at : {offset_, offset_ + place_bytes}) {
    const auto read = [this](std::span<std::byte> into, off_t from) {
      return ::pread(file_, into.data(), into.size(), from);
    };
    if (auto got = whole(read, "pread", place, at); !got) return std::unexpected(got.error());
    auto found = placed_removals::decode(place, owner_);
    if (!found || found->sequence <= sequence_) continue;
    sequence_ = found->sequence;
    newest = std::move(found->set);
  }
  return newest;
}

result<void> removal_log::store(const removal_set& set) {
  const placed_removals next{set, owner_, sequence_ + 1};
  const auto encoded = next.encode();
  const std::size_t rounded = (encoded.size() + sector_bytes - 1) / sector_bytes * sector_bytes;
  const auto memory = aligned(rounded);
  std::ranges::copy(encoded, memory.get());
  const auto write = [this](std::span<std::byte> from, off_t to) {
    return ::pwrite(file_, from.data(), from.size(), to);
  };
  const std::uint64_t at = offset_ + (next.sequence % 2 == 0 ? 0 : place_bytes);
  if (auto put = whole(write, "pwrite", {memory.get(), rounded}, at); !put) return put;
  if (::fdatasync(file_) != 0) return fail_errno("fdatasync", "the log of removals");
  ++sequence_;
  return {};
}

namespace {

struct mark_record {
  std::uint64_t magic = mark_magic;
  std::uint64_t owner = 0;
  std::uint64_t sequence = 0;
  std::uint64_t check = 0;  // of the fields before it
};

std::uint64_t check_of(const mark_record& mark) {
  return checksum_of(&mark, offsetof(mark_record, check));
}

}  // namespace

result<std::uint64_t> sequence_mark::load() const {
  const auto memory = aligned(bytes);
  const auto read = [this](std::span<std::byte> into, off_t from) {
    return ::pread(file_, into.data(), into.size(), from);
  };
  if (auto got = whole(read, "pread", {memory.get(), bytes}, offset_); !got) return std::unexpected(got.error());
  mark_record mark;
  std::memcpy(&mark, memory.get(), sizeof mark);
  const bool ours = mark.magic == mark_magic && mark.owner == owner_ && mark.check == check_of(mark);
  return ours ? mark.sequence : 0;
}

result<void> sequence_mark::store(std::uint64_t sequence) const {
  const auto memory = aligned(bytes);
  mark_record mark{.owner = owner_, .sequence = sequence};
  mark.check = check_of(mark);
  std::memcpy(memory.get(), &mark, sizeof mark);
  const auto write = [this](std::span<std::byte> from, off_t to) {
    return ::pwrite(file_, from.data(), from.size(), to);
  };
  return whole(write, "pwrite", {memory.get(), bytes}, offset_);
}

}  // namespace cenote::nvme
