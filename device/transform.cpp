#include "device/transform.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "core/bulk_copy.hpp"

namespace cenote::transform {

namespace {

constexpr std::uint64_t thread_bytes = std::uint64_t{512} << 10;  // less is not worth the start of a thread
constexpr std::uint64_t share_bytes = std::uint64_t{512} << 10;   // what a thread takes at a time
constexpr std::uint64_t chunk_bytes = std::uint64_t{2} << 20;     // longer copies are divided
constexpr std::uint64_t bulk_bytes = std::uint64_t{4} << 20;      // more than this leaves the caches anyway
constexpr std::uint64_t smallest_piece = std::uint64_t{1} << 10;  // a run below it is mostly edges

unsigned threads_for(std::uint64_t bytes, unsigned wanted) noexcept {
  const unsigned most = wanted != 0 ? wanted : std::clamp(std::thread::hardware_concurrency(), 1U, 4U);
  return static_cast<unsigned>(std::clamp<std::uint64_t>(bytes / thread_bytes, 1, most));
}

/// work(0) … work(units - 1), each once, in any order and thread; `batch` of them are taken at a time.
template <class Work>
void in_threads(std::size_t units, std::size_t batch, unsigned threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto loop = [&] {
    for (;;) {
      const std::size_t first = next.fetch_add(batch, std::memory_order_relaxed);
      if (first >= units) return;
      for (std::size_t i = first; i < std::min(units, first + batch); ++i) work(i);
    }
  };
  std::vector<std::jthread> helpers;
  helpers.reserve(threads - 1);
  try {
    while (helpers.size() + 1 < threads) helpers.emplace_back(loop);
  } catch (const std::system_error&) {
    // No more threads to be had: those that are there do it all.
  }
  loop();
}

class copier {
 public:
  copier(std::uint64_t total, copy_direction direction) noexcept
      : is_bulk_(total >= bulk_bytes), direction_(direction) {}
  void operator()(std::byte* to, const std::byte* from, std::uint64_t bytes) const noexcept {
    if (is_bulk_ && bytes >= smallest_piece) {
      bulk_copy_piece(to, from, bytes, direction_);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

 private:
  bool is_bulk_;
  copy_direction direction_;
};

/// Where each piece begins in what is moved of a block; the last entry is the size of that.
std::vector<std::uint64_t> offsets_of(std::span<const strided_piece> pieces) {
  std::vector<std::uint64_t> offsets{0};
  offsets.reserve(pieces.size() + 1);
  for (const auto& piece : pieces) offsets.push_back(offsets.back() + piece.bytes());
  return offsets;
}

/// move(engine's bytes, block number, offset in the block, bytes, copier) for every run.
template <class Move>
void each_run(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices, unsigned threads,
              copy_direction direction, const Move& move) {
  const auto offsets = offsets_of(pieces);
  const std::uint64_t total = offsets.back() * indices.size();
  if (total == 0) return;
  const copier copy(total, direction);
  const std::size_t units = pieces.size() * indices.size();
  const std::size_t batch = std::max<std::size_t>(1, share_bytes * units / total);
  in_threads(units, batch, threads_for(total, threads), [&](std::size_t unit) {
    const std::size_t block = unit / pieces.size();
    const auto& piece = pieces[unit % pieces.size()];
    std::byte* run = piece.base + indices[block] * piece.block_stride;
    std::uint64_t offset = offsets[unit % pieces.size()];
    for (std::uint64_t i = 0; i < piece.runs; ++i, run += piece.run_stride, offset += piece.run_bytes) {
      move(run, block, offset, piece.run_bytes, copy);
    }
  });
}

}  // namespace

void gather(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
            std::span<std::byte* const> blocks, unsigned threads, std::uint64_t block_offset) {
  each_run(pieces, indices, threads, copy_direction::to_blocks,
           [&](const std::byte* run, std::size_t block, std::uint64_t offset, std::uint64_t bytes, const copier& copy) {
             copy(blocks[block] + block_offset + offset, run, bytes);
           });
}

void scatter(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
             std::span<const std::byte* const> blocks, unsigned threads, std::uint64_t block_offset) {
  each_run(pieces, indices, threads, copy_direction::from_blocks,
           [&](std::byte* run, std::size_t block, std::uint64_t offset, std::uint64_t bytes, const copier& copy) {
             copy(run, blocks[block] + block_offset + offset, bytes);
           });
}

void copy_each(std::span<std::byte* const> to, std::span<const std::byte* const> from,
               std::span<const std::uint64_t> bytes, unsigned threads) {
  struct chunk {
    std::size_t item;
    std::uint64_t offset;
  };
  std::vector<chunk> chunks;
  chunks.reserve(bytes.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    total += bytes[i];
    for (std::uint64_t offset = 0; offset < bytes[i]; offset += chunk_bytes) chunks.push_back({i, offset});
  }
  if (total == 0) return;
  const copier copy(total, copy_direction::to_blocks);
  const std::size_t batch = std::max<std::size_t>(1, share_bytes * chunks.size() / total);
  in_threads(chunks.size(), batch, threads_for(total, threads), [&](std::size_t unit) {
    const auto [item, offset] = chunks[unit];
    copy(to[item] + offset, from[item] + offset, std::min(chunk_bytes, bytes[item] - offset));
  });
}

}  // namespace cenote::transform
