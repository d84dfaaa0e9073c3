#include "commands/operator/nvme_store.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "core/stored_identity.hpp"
#include "core/units.hpp"
#include "memory/segment.hpp"
#include "tiers/nvme/devices.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote {

namespace {

using nvme::stored_block;
using std::chrono::steady_clock;

constexpr std::uint64_t wanted_memory = 128 * MiB;  // for blocks that are on their way
constexpr std::uint64_t least_pieces = 2;           // one is read while the other is hashed
constexpr std::uint64_t most_pieces = 4096;
constexpr unsigned queue_depth = 32;

/// Reads blocks one after the other, many at a time, and hands each to `check`.
class sweep {
 public:
  struct answer {
    int error = 0;
    bool right = false;
  };

  sweep(std::span<const stored_block> blocks, memory::segment memory, std::uint64_t piece)
      : blocks_(blocks), memory_(std::move(memory)), piece_(piece), in_piece_(memory_.size() / piece) {}

  /// Begins; `through` must have take() as its callback.
  void run(nvme::io_engine& through) {
    std::vector<nvme::io_request> first;
    std::unique_lock lock(mutex_);
    through_ = &through;
    answers_.resize(blocks_.size());
    for (std::size_t i = 0; i < in_piece_.size() && next_ < blocks_.size(); ++i) first.push_back(next(i));
    lock.unlock();
    if (!first.empty()) through.submit(first);
    lock.lock();
    ended_.wait(lock, [this] { return done_ == blocks_.size(); });
  }

  void take(std::span<const nvme::io_completion> batch) {
    std::vector<nvme::io_request> again;
    const std::lock_guard lock(mutex_);
    for (const nvme::io_completion& each : batch) {
      const std::size_t number = in_piece_[each.tag];
      const stored_block& block = blocks_[number];
      answers_[number] = {each.error,
                          bind_checksum(each.checksum, block.instance, block.group, block.full) == block.checksum};
      ++done_;
      if (next_ < blocks_.size()) again.push_back(next(each.tag));
    }
    if (!again.empty()) through_->submit(again);
    if (done_ == blocks_.size()) ended_.notify_one();
  }

  [[nodiscard]] const std::vector<answer>& answers() const noexcept { return answers_; }

 private:
  /// Under the mutex: the request for the next block, into the i-th piece of the memory.
  nvme::io_request next(std::size_t i) {
    in_piece_[i] = next_;
    const stored_block& block = blocks_[next_++];
    return {.kind = nvme::io_kind::read,
            .offset = block.offset,
            .memory = {memory_.data() + i * piece_, block.bytes},
            .tag = i,
            .checksum = true};
  }

  std::span<const stored_block> blocks_;
  memory::segment memory_;
  std::uint64_t piece_;
  std::mutex mutex_;
  std::condition_variable ended_;
  nvme::io_engine* through_ = nullptr;
  std::vector<std::size_t> in_piece_;  ///< which block
  std::vector<answer> answers_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
};

result<memory::segment> memory_for(std::uint64_t piece, std::size_t blocks) {
  const std::uint64_t pieces = std::clamp(wanted_memory / piece, least_pieces, most_pieces);
  const std::uint64_t bytes = std::min<std::uint64_t>(pieces, blocks) * piece;
  auto memory = memory::segment::create("cenote-verify", bytes);
  if (!memory) return memory;
  memory->advise_huge();
  memory->populate(0, bytes, memory::access::read_write);
  return memory;
}

using names_by_identity = std::map<instance_identity, instance_spec>;

result<names_by_identity> names_in(const nvme::catalog& known) {
  auto listed = known.instances();
  if (!listed) return std::unexpected(listed.error());
  names_by_identity found;
  for (auto& [identity, spec] : *listed) found.emplace(identity, std::move(spec));
  return found;
}

void add_wrong(verify_report& to, const names_by_identity& known, const stored_block& block, std::string why) {
  ++to.wrong;
  const auto spec = known.find(block.instance);
  to.named.push_back({block, spec == known.end() ? "unknown" : spec->second.id, std::move(why)});
  if (to.named.size() <= verify_report::most_named) return;
  std::ranges::stable_sort(to.named, {}, [](const wrong_block& each) { return each.block.offset; });
  to.named.pop_back();
}

}  // namespace

void block_sum::add(const stored_block& block) noexcept {
  oldest = blocks == 0 ? count_of(block.touch) : std::min(oldest, count_of(block.touch));
  newest = std::max(newest, count_of(block.touch));
  ++blocks;
  bytes += block.bytes;
}

double verify_report::gib_per_second() const noexcept {
  return seconds > 0 ? static_cast<double>(bytes) / seconds / static_cast<double>(1024 * MiB) : 0;
}

result<closed_store> closed_store::open(const std::string& directory) {
  auto file = nvme::path_file::open_read_only(directory);
  if (!file) return std::unexpected(file.error());
  auto known = nvme::catalog::open({.directory = directory,
                                    .store_id = file->store_id(),
                                    .max_bytes = nvme::budget_of(file->bytes()).metadata_bytes,
                                    .read_only = true});
  if (!known) return std::unexpected(known.error());
  return closed_store(std::move(*file), std::move(*known));
}

result<store_summary> closed_store::summarize() const {
  store_summary all{.directory = file_.directory(),
                    .store_id = file_.store_id(),
                    .data_bytes = file_.bytes(),
                    .metadata_bytes = known_.disk_bytes(),
                    .damaged = 0,
                    .direct = file_.direct(),
                    .sum = {},
                    .instances = {}};
  auto specs = names_in(known_);
  if (!specs) return std::unexpected(specs.error());
  std::map<instance_identity, block_sum> sums;
  for (const auto& [identity, spec] : *specs) sums[identity];
  const auto counts = known_.load([&](const stored_block& block) {
    sums[block.instance].add(block);
    all.sum.add(block);
  });
  if (!counts) return std::unexpected(counts.error());
  all.damaged = counts->damaged;
  for (const auto& [identity, sum] : sums) {
    instance_summary one{.identity = identity, .spec = std::nullopt, .sum = sum};
    if (const auto spec = specs->find(identity); spec != specs->end()) one.spec = std::move(spec->second);
    all.instances.push_back(std::move(one));
  }
  return all;
}

result<verify_report> closed_store::verify(nvme::engine_kind kind) const {
  verify_report report;
  report.directory = file_.directory();
  report.store_id = file_.store_id();
  report.direct = file_.direct();
  const auto specs = names_in(known_);
  if (!specs) return std::unexpected(specs.error());
  std::vector<stored_block> blocks;
  std::uint64_t longest = nvme::sector_bytes;
  const auto counts = known_.load([&](const stored_block& block) {
    ++report.blocks;
    if (!nvme::adopted_from(block)) return add_wrong(report, *specs, block, "the record makes no sense");
    if (block.offset < nvme::path_file::data_offset || block.offset + block.bytes > file_.bytes()) {
      return add_wrong(report, *specs, block, "it lies outside the data file");
    }
    longest = std::max(longest, block.bytes);
    blocks.push_back(block);
  });
  if (!counts) return std::unexpected(counts.error());
  report.damaged = counts->damaged;
  std::ranges::sort(blocks, {}, &stored_block::offset);

  auto memory = memory_for(longest, std::max<std::size_t>(blocks.size(), 1));
  if (!memory) return std::unexpected(memory.error());
  sweep all(blocks, std::move(*memory), longest);
  auto engine = nvme::make_engine(kind, file_, {.queue_depth = queue_depth},
                                  [&](std::span<const nvme::io_completion> batch) { all.take(batch); });
  if (!engine) return std::unexpected(engine.error());
  report.engine = (*engine)->name();
  const auto begun = steady_clock::now();
  all.run(**engine);
  report.seconds = std::chrono::duration<double>(steady_clock::now() - begun).count();
  (*engine)->stop();

  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto& [error, right] = all.answers()[i];
    if (error == 0) report.bytes += blocks[i].bytes;
    if (error != 0) add_wrong(report, *specs, blocks[i], std::strerror(error));
    if (error == 0 && !right) add_wrong(report, *specs, blocks[i], "its bytes are not those that were written");
  }
  std::ranges::stable_sort(report.named, {}, [](const wrong_block& each) { return each.block.offset; });
  return report;
}

}  // namespace cenote
