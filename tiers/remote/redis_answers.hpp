// Answers of a turn of a backend's thread, collected until they are told.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tiers/remote/redis_request.hpp"

namespace cenote::remote {

/// What went by, since the start.
struct redis_counts {
  std::uint64_t connections = 0;       ///< that came to serve
  std::uint64_t lost = 0;              ///< connections and attempts that failed
  std::uint64_t wrong = 0;             ///< values that were not those of their block
  std::uint64_t discarded = 0;         ///< of these, and of puts that were cut: removed again
  std::uint64_t late = 0;              ///< replies for nobody, after the deadline
  std::uint64_t stale = 0;             ///< replies under an epoch that was over, of puts and drops sent again
  std::uint64_t full = 0;              ///< puts that the server had no room for
  std::uint64_t epochs_adopted = 0;    ///< newer ones of a server: another node's clear, or made anew by another node
  std::uint64_t epochs_made = 0;       ///< by this node: a clear, or a server that had forgotten
  std::uint64_t epochs_unwritten = 0;  ///< the node's own file could not be written
};

/// Ends requests, each once. Not thread-safe.
class redis_answers {
 public:
  /// Before anything is done for them: what is lost on the way is answered by end_lost(). All of them or, when it
  /// throws, none.
  void begin(request_kind kind, const std::vector<item>& batch) {
    try {
      for (const item& each : batch) open_.emplace(each.token, kind);
    } catch (...) {
      for (const item& each : batch) open_.erase(each.token);
      throw;
    }
  }
  /// Answers `request`: for a key that was asked for `done` means there and `missing` not there. With `why`, what
  /// failed.
  void end(redis_request& request, item_result what, steady_time now, const error* why = nullptr) {
    if (request.is_answered) return;
    const std::size_t size = request.size;
    const auto asked = std::move(request.asked);
    request.abandon();
    if (request.kind == request_kind::put || request.kind == request_kind::get) {
      const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now - request.begun).count();
      auto& list = request.kind == request_kind::put ? put_ : got_;
      list.push_back({.token = request.token, .what = what, .micros = static_cast<std::uint64_t>(micros)});
      open_.erase(request.token);
      open_bytes -= size;
      if (what == item_result::full) ++counts.full;
    } else if (asked) {
      count(*asked, request, what, why);
      if (--asked->open == 0) finish(*asked);
    }
  }

  /// A question that has no keys.
  void finish(redis_question& asked) {
    open_keys -= asked.found.held.size();
    if (asked.told) {
      told_.emplace_back(
          [told = std::move(asked.told), found = std::move(asked.found)]() mutable { told(std::move(found)); });
    } else if (asked.dropped) {
      told_.emplace_back([told = std::move(asked.dropped), failure = std::move(asked.failure), n = asked.removed,
                          silent = std::move(asked.silent)] {
        told(failure ? result<std::uint64_t>(std::unexpected(*failure)) : result<std::uint64_t>(n), silent);
      });
    } else if (asked.cleared) {
      told_.emplace_back([told = std::move(asked.cleared), outcome = outcome_of_clear(asked)] { told(outcome); });
    }
  }

  /// Puts and gets that began and that nobody has any more, since an exception ended what was done for them. To be
  /// called when no connection has a request.
  void end_lost() {
    for (auto each = open_.begin(); each != open_.end(); each = open_.erase(each)) {
      auto& list = each->second == request_kind::put ? put_ : got_;
      list.push_back({.token = each->first, .what = item_result::unreachable});
    }
    open_bytes = open_keys = 0;
  }

  /// Tells what was collected. What a callback throws goes on; the rest is told the next time, outcomes whose callback
  /// threw included.
  void deliver(const backend::events& events) {
    if (!put_.empty() && events.put) events.put(put_);
    put_.clear();
    if (!got_.empty() && events.got) events.got(got_);
    got_.clear();
    while (next_ < told_.size()) {
      const auto tell = std::move(told_[next_++]);
      tell();
    }
    told_.clear();
    next_ = 0;
  }

  redis_counts counts;
  std::size_t open_bytes = 0;  ///< of blocks whose puts and gets have no answer
  std::size_t open_keys = 0;   ///< of questions
  /// Instances that another node cleared, and that this node's own tiers have to clear before more of them is asked.
  /// True: a clear that was found since the last one was handed on.
  std::map<instance_identity, bool> clears_above;

 private:
  static result<void> outcome_of_clear(const redis_question& asked) {
    if (!asked.failure) return {};
    std::string text =
        asked.failure->message() + "; it is cleared before anything of the instance is asked there again";
    if (asked.unwritten) text += ", if this process lives that long: " + asked.unwritten->message();
    return fail(error_code::removal_pending, std::move(text));
  }

  static void count(redis_question& asked, const redis_request& request, item_result what, const error* why) {
    if (request.kind == request_kind::exists) {
      asked.found.held[request.index] = what == item_result::done;
      if (what == item_result::unreachable) asked.found.is_complete = false;
    } else if (what == item_result::done) {
      ++asked.removed;
    } else if (what != item_result::missing) {
      asked.silent.insert(request.server);
      if (!asked.failure)
        asked.failure = why != nullptr ? *why : error(error_code::deadline_exceeded, "no answer in time");
    }
  }

  std::unordered_map<std::uint64_t, request_kind> open_;  ///< puts and gets without an answer, by token
  std::vector<item_outcome> put_, got_;
  std::vector<std::function<void()>> told_;
  std::size_t next_ = 0;
};

}  // namespace cenote::remote
