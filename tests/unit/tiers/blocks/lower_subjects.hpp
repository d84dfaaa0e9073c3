// Tiers below a store of blocks, as tests drive them: the one on NVMe, and one in memory that exists for tests alone.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "memory/lower_hints.hpp"
#include "tests/support/fake_io.hpp"
#include "tests/support/numbered_identity.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/store.hpp"
#include "tiers/remote/store.hpp"
#include "tiers/transfer.hpp"

namespace cenote::blocks::testing {

/// What a store of blocks wants of a tier below it. Nothing is done but by step().
class lower_subject {
 public:
  virtual ~lower_subject() = default;
  virtual void write(std::span<const transfer> blocks) = 0;
  virtual void read(std::span<const transfer> blocks) = 0;
  virtual void forget(std::uint32_t instance, const std::vector<block_key>& keys) = 0;
  /// One piece of work; false: there is none.
  virtual bool step() = 0;
  /// It takes and gives nothing from now on: what it has to do ends, one way or the other.
  virtual void stop() = 0;
  /// Alters a byte of the copy of what `bytes` are.
  virtual void spoil(std::span<const std::byte> bytes) = 0;
  virtual std::vector<transfer_outcome> take_outcomes() = 0;
  virtual std::vector<lost_block> take_lost() = 0;
  std::vector<transfer_outcome> settle() {
    while (step()) continue;
    return take_outcomes();
  }
};

/// Keeps copies in memory, the latest `most` of them.
class memory_subject final : public lower_subject {
 public:
  explicit memory_subject(std::size_t most = 1 << 20) : most_(most) {}

  void write(std::span<const transfer> blocks) override {
    for (const transfer& each : blocks) work_.push_back({each, false});
  }
  void read(std::span<const transfer> blocks) override {
    for (const transfer& each : blocks) work_.push_back({each, true});
  }
  /// Also what is on its way.
  void forget(std::uint32_t instance, const std::vector<block_key>& keys) override {
    for (const block_key& key : keys) {
      copies_.erase({instance, key});
      for (job& each : work_) {
        if (!each.up && each.what.instance == instance && each.what.key == key) each.unwanted = true;
      }
    }
  }
  bool step() override {
    if (work_.empty()) return false;
    const job next = work_.front();
    work_.pop_front();
    outcomes_.push_back({next.what.token, next.up ? fill(next.what) : keep(next)});
    return true;
  }
  void stop() override { stopped_ = true; }
  void spoil(std::span<const std::byte> bytes) override {
    for (auto& [of, kept] : copies_) {
      if (std::ranges::equal(kept.bytes, bytes)) kept.bytes[7] ^= std::byte{1};
    }
  }
  std::vector<transfer_outcome> take_outcomes() override { return std::exchange(outcomes_, {}); }
  std::vector<lost_block> take_lost() override { return std::exchange(lost_, {}); }
  [[nodiscard]] std::uint64_t filled() const noexcept { return filled_; }

 private:
  using name = std::pair<std::uint32_t, block_key>;
  struct name_order {
    bool operator()(const name& a, const name& b) const noexcept {
      return std::tuple(a.first, a.second.hi, a.second.lo) < std::tuple(b.first, b.second.hi, b.second.lo);
    }
  };
  struct job {
    transfer what;
    bool up = false;
    bool unwanted = false;
  };
  struct copy {
    std::vector<std::byte> bytes;
    std::uint64_t checksum = 0;
  };

  transfer_result keep(const job& one) {
    if (one.unwanted || stopped_) return transfer_result::dropped;
    const auto& memory = one.what.memory;
    copies_[{one.what.instance, one.what.key}] = {{memory.begin(), memory.end()},
                                                  checksum_of(memory.data(), memory.size())};
    order_.emplace_back(one.what.instance, one.what.key);
    for (; copies_.size() > most_; order_.pop_front()) {
      if (copies_.erase(order_.front()) != 0) lost_.push_back({order_.front().first, order_.front().second});
    }
    return transfer_result::done;
  }
  transfer_result fill(const transfer& one) {
    const auto found = copies_.find({one.instance, one.key});
    if (found == copies_.end() || stopped_) return transfer_result::missing;
    if (checksum_of(found->second.bytes.data(), found->second.bytes.size()) != found->second.checksum) {
      copies_.erase(found);
      return transfer_result::failed;
    }
    std::memcpy(one.memory.data(), found->second.bytes.data(), one.memory.size());
    ++filled_;
    return transfer_result::done;
  }

  std::size_t most_;
  std::deque<job> work_;
  std::map<name, copy, name_order> copies_;
  std::deque<name> order_;
  std::vector<transfer_outcome> outcomes_;
  std::vector<lost_block> lost_;
  std::uint64_t filled_ = 0;
  bool stopped_ = false;
};

/// The tier on NVMe with one path, whose file is in memory. Instance 1; `hints`: where it says what it holds.
class nvme_subject final : public lower_subject {
 public:
  explicit nvme_subject(std::uint64_t bytes = 4 << 20, memory::hint_writer hints = {})
      : io_(nvme::path_file::data_offset + bytes, nvme::fake_io::pace::stepped,
            [this](std::span<const nvme::io_completion> batch) {
              ended_.insert(ended_.end(), batch.begin(), batch.end());
            }) {
    store_.bind(1, 77_identity, std::move(hints));
    store_.open_path(0, nvme::path_file::data_offset, nvme::path_file::data_offset + bytes, 1'000'000);
    pass_on();
  }

  void write(std::span<const transfer> blocks) override {
    store_.write(blocks, now_);
    pass_on();
  }
  void read(std::span<const transfer> blocks) override {
    store_.read(blocks, now_);
    pass_on();
  }
  void forget(std::uint32_t instance, const std::vector<block_key>& keys) override {
    store_.remove(instance, keys);
    pass_on();
  }
  bool step() override {
    if (!io_.step() && ended_.empty()) return false;
    const auto batch = std::exchange(ended_, {});
    store_.complete(0, batch, ++now_);
    pass_on();
    return true;
  }
  void stop() override {
    store_.path_failed(0, "stopped");
    io_.stop();
  }
  void spoil(std::span<const std::byte> bytes) override {
    const auto file = io_.contents();
    const auto found = std::ranges::search(file, bytes);
    if (!found.empty()) found.begin()[7] ^= std::byte{1};
  }
  std::vector<transfer_outcome> take_outcomes() override { return std::exchange(outcomes_, {}); }
  std::vector<lost_block> take_lost() override { return store_.take_lost(); }
  [[nodiscard]] std::uint64_t filled() const { return store_.status().counters.read; }

 private:
  static nvme::store_options one_path() {
    nvme::store_options options;
    options.paths = 1;
    return options;
  }
  void pass_on() {
    (void)store_.take_changes();
    for (const nvme::path_request& each : store_.take_requests()) io_.submit({&each.io, 1});
    for (const transfer_outcome& each : store_.take_outcomes()) outcomes_.push_back(each);
  }

  nvme::store store_{one_path()};
  nvme::fake_io io_;
  std::vector<nvme::io_completion> ended_;
  std::vector<transfer_outcome> outcomes_;
  wall_time now_ = wall_time_of(100);
};

/// The remote tier with one backend, which is a map.
class remote_subject final : public lower_subject {
 public:
  remote_subject() {
    instance_spec spec;
    spec.id = "model";
    store_.bind(1, spec, true);
    store_.set_standing(0, {});
  }

  void write(std::span<const transfer> blocks) override {
    store_.put(blocks, {.steady = now_, .boot = {}});
    pass_on();
  }
  void read(std::span<const transfer> blocks) override {
    store_.get(blocks, now_);
    pass_on();
  }
  void forget(std::uint32_t instance, const std::vector<block_key>& keys) override {
    store_.forget(instance, keys);
    for (const block_key& key : keys) work_.push_back({.drops = key});
    pass_on();
  }
  bool step() override {
    if (work_.empty()) return false;
    const job next = work_.front();
    work_.pop_front();
    now_ += std::chrono::milliseconds(1);
    if (next.drops) {
      values_.erase(name_of(*next.drops));
    } else {
      const remote::item_outcome ended{.token = next.what.token, .what = carry_out(next), .micros = 1};
      store_.answered(0, next.kind, std::span(&ended, 1), now_);
    }
    pass_on();
    return true;
  }
  void stop() override {
    stopped_ = true;
    store_.set_standing(0, fail(error_code::closed, "stopped"));
  }
  void spoil(std::span<const std::byte> bytes) override {
    for (auto& [of, kept] : values_) {
      if (std::ranges::equal(kept.bytes, bytes)) kept.bytes[7] ^= std::byte{1};
    }
  }
  std::vector<transfer_outcome> take_outcomes() override { return std::exchange(outcomes_, {}); }
  std::vector<lost_block> take_lost() override { return {}; }
  [[nodiscard]] std::uint64_t filled() const { return store_.counters.got; }

 private:
  using name = std::pair<std::uint64_t, std::uint64_t>;
  struct value {
    std::vector<std::byte> bytes;
    std::uint64_t hash = 0;
  };
  struct job {
    remote::call::kind kind = remote::call::kind::put;
    remote::item what{};
    std::optional<block_key> drops{};
  };

  static name name_of(const block_key& key) { return {key.hi, key.lo}; }
  remote::item_result carry_out(const job& one) {
    const name key = name_of(one.what.name.key());
    if (stopped_) return remote::item_result::unreachable;
    if (one.kind == remote::call::kind::put) {
      values_.try_emplace(key, value{{one.what.memory.begin(), one.what.memory.end()},
                                     checksum_of(one.what.memory.data(), one.what.memory.size())});
      return remote::item_result::done;
    }
    const auto found = values_.find(key);
    if (found == values_.end()) return remote::item_result::missing;
    if (checksum_of(found->second.bytes.data(), found->second.bytes.size()) != found->second.hash) {
      values_.erase(found);
      return remote::item_result::wrong;
    }
    std::ranges::copy(found->second.bytes, one.what.memory.begin());
    return remote::item_result::done;
  }
  void pass_on() {
    for (const remote::call& each : store_.take_calls()) {
      for (const remote::item& one : each.items) work_.push_back({.kind = each.what, .what = one});
    }
    for (const remote::late_removal& each : store_.take_late()) work_.push_back({.drops = each.key});
    for (const transfer_outcome& each : store_.take_outcomes()) outcomes_.push_back(each);
  }

  remote::store store_{1};
  std::map<name, value> values_;
  std::deque<job> work_;
  std::vector<transfer_outcome> outcomes_;
  remote::steady_time now_{};
  bool stopped_ = false;
};

}  // namespace cenote::blocks::testing
