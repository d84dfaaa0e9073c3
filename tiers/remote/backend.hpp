// A place outside this machine that keeps blocks: the interface of the remote tier's backends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "tiers/remote/counters.hpp"
#include "tiers/steps.hpp"

namespace cenote::remote {

/// What a block is called outside this machine: places know it by identity and key(); the full key stands in the value,
/// and a value with another one is `missing`, not `wrong`.
struct block_name {
  instance_identity identity{};  ///< of its instance: identity_of(spec)
  std::uint32_t group = 0;
  full_key full{};

  [[nodiscard]] block_key key() const noexcept { return reduce_key(full.view(), group); }
};

/// A block to put, or memory to fill with one. The memory is the backend's until it has answered with the token.
struct item {
  std::uint64_t token = 0;
  block_name name{};
  std::span<std::byte> memory;          ///< the whole stride of a block
  std::optional<std::uint64_t> hash{};  ///< put: XXH3-64 of `memory`, if it was taken already
  std::uint32_t from = 0;               ///< get: cluster::pool's number of a node to ask first; 0: none
  /// Put: the block came at this time or later, and was not put then. A place whose removals this node does not get
  /// answers `refused` unless no other node has removed anything of the instance there since then.
  std::optional<std::chrono::steady_clock::time_point> missed{};
};

enum class item_result : std::uint8_t {
  done,     ///< kept there, or kept there before; filled, and right
  missing,  ///< get: not there
  full,     ///< put: no room, or the value is larger than the place allows
  wrong,    ///< get: header, size or bytes are not those of the block; that copy was dropped. Put: what came there is
            ///< not what `hash` is of; nothing was kept
  unreachable,  ///< no connection, an error of it, no answer in time: what became of a put is not known
  refused,      ///< the place was not asked: more is open than the backend takes, or a removal came first
  unknown,      ///< put: one node of the place got its bytes and gave no answer; the place itself answers
  own,          ///< put: this node is where the block belongs
};

struct item_outcome {
  std::uint64_t token = 0;
  item_result what = item_result::done;
  std::uint64_t micros = 0;  ///< from the call to the answer
  bool is_copy = false;      ///< done: the block belongs to another node, which has it
};

/// Which of the keys asked for are there.
struct presence {
  std::vector<bool> held;   ///< one a key, in their order; false also where nobody knows
  bool is_complete = true;  ///< false: a part of the question was not answered in time
};

/// Removals and clears of an instance that wait for a confirmation.
struct unconfirmed_removals {
  std::uint64_t removals = 0;
  std::uint64_t places = 0;  ///< nodes and servers that have not confirmed one of them
};

/// Called `parts` times, from any threads, it calls `then` with the sum at the last one.
[[nodiscard]] std::function<void(unconfirmed_removals)> sum_of(std::size_t parts,
                                                               std::function<void(unconfirmed_removals)> then);

/// One place. Its calls come from one thread at a time, never block and never fail: each item, question and removal is
/// answered once, within `timeout` of the call, on a thread of the backend; after stop() nothing is called any more,
/// and what was open is answered `unreachable` before it returns.
class backend {
 public:
  struct events {
    std::function<void(std::vector<item_outcome>)> put, got;
    /// The place answers, or does not any more, and why. Also once after the start, when the reason is another
    /// one, and when it stands and may take now what it has refused.
    std::function<void(result<void>)> standing;
    /// Another node cleared the instance there. Nothing of it is done any more until clear_above_ended(); puts
    /// that were asked for before are `refused` then.
    std::function<void(instance_identity identity)> cleared{};
    /// A line for the log, with one field.
    std::function<void(const std::string& event, const std::string& field, const std::string& value)> notice{};
    exception_callback on_exception{};  ///< of an exception that ended a piece of work on a thread of the backend
  };

  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  virtual ~backend() = default;

  /// An instance that is used here, before anything is asked of its blocks; again when the backend has said that it
  /// stands.
  virtual void bind(const instance_spec& /*spec*/) {}
  /// Instances that earlier processes used, whose blocks may be there still: a clear by name, or of all, means them,
  /// too. On any thread.
  [[nodiscard]] virtual std::vector<instance_spec> earlier_instances() const { return {}; }
  /// It is used here no more.
  virtual void unbind(instance_identity /*identity*/) {}
  /// Looks whether another node has cleared the instance, so that this is known before anything of it is stored here.
  virtual void look_for_clear(instance_identity /*identity*/) {}
  /// The tiers of this node have cleared the instance, as events::cleared asked; or why not.
  virtual void clear_above_ended(instance_identity /*identity*/, const result<void>& /*outcome*/) {}
  virtual void put(std::vector<item> batch) = 0;
  virtual void get(std::vector<item> batch) = 0;
  /// Which of these blocks of one instance are there; `answer` comes within `patience`.
  virtual void locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
                      std::function<void(presence)> answer) = 0;
  /// Removes blocks of an instance, which who removes knows by their block keys alone. `answer`: how many there were,
  /// or why that is not known.
  virtual void drop(instance_identity identity, std::vector<block_key> keys,
                    std::function<void(result<std::uint64_t>)> answer) = 0;
  /// From now on no block of the instance is found that anybody put before.
  virtual void clear(instance_identity identity, std::function<void(result<void>)> answer) = 0;
  /// The same of these instances and of all that this node knows to have been there, earlier processes included.
  virtual void clear_all(std::vector<instance_identity> identities, std::function<void(result<void>)> answer) = 0;
  /// Counts what is not confirmed of an instance; on any thread. After stop() `answer` may never be called.
  virtual void count_unconfirmed(instance_identity identity, std::function<void(unconfirmed_removals)> answer) = 0;
  /// Of all instances; on any thread.
  [[nodiscard]] virtual removal_figures removals() const = 0;
  virtual void stop() noexcept = 0;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;  ///< as configured, without passwords
};

}  // namespace cenote::remote
