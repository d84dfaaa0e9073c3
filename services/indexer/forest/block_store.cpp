#include "services/indexer/forest/block_store.hpp"

#include <algorithm>

namespace cenote::indexer {

namespace {

constexpr std::size_t block_bytes = 20;  // at least, with its name
constexpr unsigned owner_shift = 3;
constexpr unsigned run_shift = 3;

std::size_t block_bound(const index_budget& budget) noexcept {
  return std::clamp<std::size_t>(budget.limit() / block_bytes, 4096, std::size_t{1} << 31);
}

// At most 64 chunks while memory is little, so that one is a small part of it; else huge pages.
unsigned chunk_bits(const index_budget& budget) noexcept {
  const std::size_t blocks = block_bound(budget) / 128;
  return std::clamp<unsigned>(static_cast<unsigned>(std::bit_width(blocks)), 10, 18);
}

}  // namespace

block_store::block_store(index_budget& budget)
    : budget_(budget),
      most_blocks_((block_bound(budget) >> chunk_bits(budget)) << chunk_bits(budget)),
      keys_(budget, most_blocks_, chunk_bits(budget)),
      hashes_(budget, most_blocks_, chunk_bits(budget)),
      owners_(budget, most_blocks_ / granule, chunk_bits(budget) - owner_shift),
      runs_(budget, most_blocks_ / granule, chunk_bits(budget) - run_shift),
      records_(budget, most_blocks_ / granule, chunk_bits(budget) - run_shift) {
  free_extents_.fill(no_block);
}

bool block_store::add_chunk() noexcept {
  // A part of the bound stays for names, spans and sets, which need none of it only as long as there are few blocks.
  const std::size_t reserve = budget_.limit() / 6 + keys_.chunk_size() * 9;
  if (!keys_.grow(reserve)) return false;
  if (!hashes_.grow(reserve - keys_.chunk_size() * 8)) {
    keys_.shrink();
    return false;
  }
  if (!owners_.grow()) {
    keys_.shrink();
    hashes_.shrink();
    return false;
  }
  while (top_ < top_end_) {  // an extent lies in one chunk
    const std::uint32_t size = std::min(top_end_ - top_, most_run);
    push({top_, size});
    top_ += size;
  }
  top_ = static_cast<block_number>(keys_.capacity() - keys_.chunk_size());
  top_end_ = static_cast<block_number>(keys_.capacity());
  return true;
}

void block_store::push(block_extent unused) noexcept {
  const std::uint32_t size = unused.capacity / granule - 1;
  *keys(unused.base) = free_extents_[size];
  free_extents_[size] = unused.base;
  free_classes_ |= std::uint64_t{1} << size;
  unused_ += unused.capacity;
}

std::optional<block_store::block_extent> block_store::pop(std::uint32_t request) noexcept {
  if (free_classes_ == 0) return std::nullopt;
  const std::uint64_t enough = free_classes_ & ~((std::uint64_t{1} << (request / granule - 1)) - 1);
  const auto size =
      static_cast<std::uint32_t>(enough != 0 ? std::countr_zero(enough) : 63 - std::countl_zero(free_classes_));
  block_extent found{free_extents_[size], (size + 1) * granule};
  free_extents_[size] = static_cast<block_number>(*keys(found.base));
  if (free_extents_[size] == no_block) free_classes_ &= ~(std::uint64_t{1} << size);
  unused_ -= found.capacity;
  if (found.capacity > request) {
    push({found.base + request, found.capacity - request});
    found.capacity = request;
  }
  return found;
}

std::optional<block_store::block_extent> block_store::allocate(std::uint32_t request) noexcept {
  request = std::clamp(whole_granules(request), granule, most_run);
  if ((free_classes_ >> (request / granule - 1)) != 0) return pop(request);
  if (top_ == top_end_ && !add_chunk()) return pop(request);
  const block_extent made{top_, std::min(request, top_end_ - top_)};
  top_ += made.capacity;
  return made;
}

std::uint32_t block_store::extend(block_extent present, std::uint32_t request) noexcept {
  if (present.base + present.capacity != top_) return 0;
  const std::uint32_t size = std::min({whole_granules(request), top_end_ - top_, most_run - present.capacity});
  top_ += size;
  return size;
}

void block_store::release(block_extent unused) noexcept {
  const bool is_in_top_chunk = top_ % keys_.chunk_size() != 0;
  if (is_in_top_chunk && unused.base + unused.capacity == top_) {
    top_ = unused.base;
  } else {
    push(unused);
  }
}

std::optional<std::uint32_t> block_store::add_run() noexcept {
  std::uint32_t number = free_runs_;
  if (number != no_run) {
    free_runs_ = records_[number].parent;
  } else {
    if (run_bound_ == runs_.capacity() && !runs_.grow()) return std::nullopt;
    if (run_bound_ == records_.capacity() && !records_.grow()) return std::nullopt;
    number = run_bound_++;
  }
  if (++births_ == 0) ++births_;
  records_[number] = {.birth = births_};
  return number;
}

void block_store::reuse_run(std::uint32_t number) noexcept {
  records_[number] = {.parent = free_runs_};
  free_runs_ = number;
}

std::uint32_t block_store::run_of(block_number block) const noexcept {
  if (block >= keys_.capacity() || block >= top_) return no_run;
  const std::uint32_t number = owner(block);
  if (number >= run_bound_ || records_[number].birth == 0) return no_run;
  const block_run& found = runs_[number];
  return block >= found.base && block - found.base < found.length ? number : no_run;
}

}  // namespace cenote::indexer
