// Blocks outside this machine: which backend is asked for what, and what becomes of each transfer. No I/O.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "tiers/remote/backend.hpp"
#include "tiers/remote/counters.hpp"
#include "tiers/remote/steady_time.hpp"
#include "tiers/transfer.hpp"
#include "transport/redis/breaker.hpp"

namespace cenote::remote {

using backend_number = std::uint32_t;
inline constexpr std::size_t max_backends = 8;

/// What a backend is to do: all items of one kind.
struct call {
  enum class kind : std::uint8_t { put, get };
  kind what = kind::put;
  backend_number to = 0;
  std::vector<item> items;
};

/// Blocks that a backend shall remove, since they landed after they were removed.
struct late_removal {
  backend_number from = 0;
  instance_identity identity{};
  block_key key;
};

struct backend_status {
  bool stands = false;
  redis::breaker_state breaker = redis::breaker_state::closed;
  std::string why;  ///< it does not stand; empty: it does
};

/// The tier's decisions. A put goes to the first backend that stands and whose breaker admits it; a get asks them in
/// order, the next one when a block was not got from one: each token ends within the backends' time-outs together. Not
/// thread-safe; the caller passes the time, carries out take_calls() and hands on take_outcomes().
class store {
 public:
  explicit store(std::size_t backends) : places_(backends) {}

  /// Blocks of the instance have this identity; `leaves`: they may leave the machine.
  void bind(std::uint32_t instance, const instance_spec& spec, bool leaves);
  void unbind(std::uint32_t instance) { instances_.erase(instance); }
  [[nodiscard]] std::optional<instance_identity> identity_of(std::uint32_t instance) const;
  /// False also for an instance that is not bound.
  [[nodiscard]] bool may_leave(std::uint32_t instance) const;

  void put(std::span<const transfer> blocks, const clock_reading& now);
  void get(std::span<const transfer> blocks, steady_time now);
  /// Answers of a backend to a call; tokens that the store does not know are ignored.
  void answered(backend_number from, call::kind what, std::span<const item_outcome> outcomes, steady_time now);
  void set_standing(backend_number of, const result<void>& how);
  /// Of an instance: what is on its way there is removed when it has landed, and what is on its way here is `missing`.
  /// Empty: all keys.
  void forget(std::uint32_t instance, std::span<const block_key> keys);
  void forget_all();

  /// Backends to ask which keys they have. What became of each question is told to located().
  [[nodiscard]] std::vector<backend_number> askable(steady_time now);
  /// `answered`: all of it in time. A question is asked in haste, so that a late answer alone opens no breaker.
  void located(backend_number from, bool answered, steady_time now);
  /// Whether a transfer that comes now has a chance.
  [[nodiscard]] bool is_standing(steady_time now) const;

  [[nodiscard]] std::vector<call> take_calls() { return std::exchange(calls_, {}); }
  [[nodiscard]] std::vector<transfer_outcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  [[nodiscard]] std::vector<late_removal> take_late() { return std::exchange(late_, {}); }

  [[nodiscard]] store_gauges gauges() const;
  [[nodiscard]] backend_status status_of(backend_number number, steady_time now) const;
  [[nodiscard]] std::size_t backends() const noexcept { return places_.size(); }

  store_counters counters;

 private:
  struct place {
    bool stands = false;
    std::string why = "not heard of yet";
    redis::breaker guard{};
  };
  struct bound {
    instance_identity identity{};
    bool leaves = true;
  };
  struct moving {
    transfer what;
    instance_identity identity{};
    backend_number at = 0;
    bool up = false;
    std::optional<steady_time> missed{};  ///< see item::missed
    bool unwanted = false;
    bool found_wrong = false;  ///< by a backend before this one
  };

  [[nodiscard]] std::optional<backend_number> next_place(backend_number first, steady_time now);
  void begin(moving block, steady_time now);
  void queue(backend_number to, const moving& what);
  void end(std::unordered_map<std::uint64_t, moving>::iterator of, transfer_result how, bool is_copy = false);
  void end_put(std::unordered_map<std::uint64_t, moving>::iterator of, const item_outcome& outcome);
  void end_get(std::unordered_map<std::uint64_t, moving>::iterator of, const item_outcome& outcome, steady_time now);

  std::vector<place> places_;
  std::unordered_map<std::uint32_t, bound> instances_;
  std::unordered_map<std::uint64_t, moving> moving_;  ///< by token
  std::vector<call> calls_;
  std::vector<transfer_outcome> outcomes_;
  std::vector<late_removal> late_;
};

}  // namespace cenote::remote
