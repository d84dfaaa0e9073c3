// Removals, of the device's tier and of DRAM: writes that are under way must not undo them.
#include <algorithm>
#include <utility>

#include "core/byte_io.hpp"
#include "tiers/gpu/dram_guest.hpp"
#include "tiers/gpu/entries.hpp"

namespace cenote::gpu {

using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;

namespace {

bool names(const blocks::removal& what, const block_key& key) {
  return what.all || std::ranges::find(what.keys, key) != what.keys.end();
}

}  // namespace

/// Of a removal by the device's tier.
bool dram_guest::is_meant(const bound& one, const blocks::removal& what) const {
  if (!one.share) return false;
  if (what.instance != 0) return one.number == what.instance;
  return what.all && (what.id.empty() || one.share->whole.id == what.id || one.spec.id == what.id);
}

/// Of a removal by DRAM. While it is not known which instance of DRAM this one is, it may be any.
bool dram_guest::is_meant_by_dram(const bound& one, const blocks::removal& what) {
  if (!one.share) return false;
  const bool is_named = what.all && !what.id.empty() && one.share->whole.id == what.id;
  if (what.instance == 0) return what.all && (what.id.empty() || is_named);
  if (!one.session) return what.id.empty() || is_named;
  return is_named || one.session->instance == what.instance;
}

void dram_guest::forget(const std::vector<blocks::removal>& removals, answer then) {
  std::vector<std::pair<bound_ptr, const blocks::removal*>> meant;
  for (const blocks::removal& each : removals) {
    const std::size_t before = meant.size();
    for (const auto& [number, of] : bound_) {
      if (is_meant(*of, each)) meant.emplace_back(of, &each);
    }
    if (each.instance == 0 && !each.id.empty() && meant.size() == before) {
      return then(blocks::no_instance(each.id));
    }
  }
  const std::uint64_t serial = begin_forgetting(std::move(then));
  for (const auto& [of, what] : meant) {
    if (what->on_its_way)
      stop_and_undo(serial, of, *what);
    else
      stop_and_remove(serial, of, *what);
  }
  settle(serial, 0);
  flush();
}

std::vector<blocks::removal> dram_guest::stop_writing(const std::vector<blocks::removal>& removals, answer then) {
  std::vector<blocks::removal> translated;
  const std::uint64_t serial = begin_forgetting(std::move(then));
  for (const blocks::removal& each : removals) {
    for (const auto& [number, of] : bound_) {
      if (!is_meant_by_dram(*of, each)) continue;
      translated.push_back({.instance = number, .all = each.all, .keys = each.keys});
      stop_and_undo(serial, of, each);
    }
    for (const bound_ptr& of : leaving_) {
      if (is_meant_by_dram(*of, each)) stop_and_undo(serial, of, each);
    }
  }
  settle(serial, 0);
  flush();
  return translated;
}

std::uint64_t dram_guest::begin_forgetting(answer then) {
  const std::uint64_t serial = next_serial_++;
  removals_.emplace(serial, forgetting{.until = hooks_.now() + forget_limit, .then = std::move(then)});
  return serial;
}

/// A step of it ended; the last one ends it.
void dram_guest::settle(std::uint64_t serial, const result<std::uint64_t>& how) {
  const auto found = removals_.find(serial);
  if (found == removals_.end()) return;  // it was overdue
  forgetting& one = found->second;
  if (how)
    one.removed += *how;
  else if (!one.wrong)
    one.wrong = how.error();
  if (--one.open != 0) return;
  const forgetting ended = std::move(one);
  removals_.erase(found);
  if (ended.wrong)
    ended.then(std::unexpected(*ended.wrong));
  else
    ended.then(ended.removed);
}

/// Ends writes that wait, and marks those that are under way. Returns the batches that are being finished, and adds to
/// `finishing` which of their keys are meant.
std::vector<std::uint64_t> dram_guest::stop(bound& of, const blocks::removal& what, std::vector<block_key>& finishing) {
  std::vector<std::uint64_t> late;
  std::erase_if(of.writes, [&](const waiting_write& each) {
    if (!names(what, each.what.key)) return false;
    conclude(each.what, transfer_result::dropped);
    return true;
  });
  for (auto& [serial, each] : writes_) {
    if (each.of.get() != &of) continue;
    const std::size_t before = finishing.size();
    for (moving& one : each.blocks) {
      if (!names(what, one.what.key)) continue;
      one.is_unwanted = true;
      if (each.at == stage::finishing) finishing.push_back(one.what.key);
    }
    if (finishing.size() != before) late.push_back(serial);
  }
  return late;
}

/// Calls when these writes have been finished.
void dram_guest::after(const std::vector<std::uint64_t>& writes, std::function<void()> then) {
  if (writes.empty()) return then();
  const auto left = std::make_shared<std::size_t>(writes.size());
  const auto kept = std::make_shared<std::function<void()>>(std::move(then));
  for (const std::uint64_t serial : writes) {
    writes_.at(serial).when_finished.emplace_back([left, kept] {
      if (--*left == 0) (*kept)();
    });
  }
}

/// What was finished behind the removal is removed again.
void dram_guest::stop_and_undo(std::uint64_t serial, const bound_ptr& of, const blocks::removal& what) {
  blocks::removal again;
  again.instance = of->number;
  const auto late = stop(*of, what, again.keys);
  if (late.empty()) return;
  ++removals_.at(serial).open;
  after(late, [this, serial, of, again] { remove(serial, of, again); });
}

void dram_guest::stop_and_remove(std::uint64_t serial, const bound_ptr& of, const blocks::removal& what) {
  std::vector<block_key> finishing;
  const auto late = stop(*of, what, finishing);
  ++removals_.at(serial).open;
  after(late, [this, serial, of, what] {
    with_open(of, [this, serial, of, what](const result<void>& how) {
      if (how) return remove(serial, of, what);
      settle(serial, fail(error_code::removal_pending, "DRAM may have blocks of it: " + how.error().message()));
    });
  });
}

void dram_guest::remove(std::uint64_t serial, const bound_ptr& of, const blocks::removal& what) {
  std::vector<submission> entries;
  if (what.all) entries.push_back(entry_of(operation::clear, 0));
  for (const block_key& each : what.all ? std::vector<block_key>() : what.keys)
    entries.emplace_back(entry_of(operation::remove, 0, std::as_bytes(std::span(&each, 1)))).flags |=
        submission::flag_reduced;
  if (entries.empty()) return settle(serial, 0);
  close_request(entries);
  room_.run(of->session->number, std::move(entries), false, [this, serial, of](const std::vector<completion>& how) {
    const auto done = std::ranges::find(how, completion_kind::done, &completion::kind);
    const auto code = done == how.end() ? error_code::closed : static_cast<error_code>(done->code);
    settle(serial, code == error_code::ok ? result<std::uint64_t>(done->value)
                                          : fail(error_code::removal_pending,
                                                 "DRAM may have blocks of it: " + std::string(to_string(code))));
    flush();
  });
}

}  // namespace cenote::gpu
