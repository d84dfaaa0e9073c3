#include "services/manager/writes/finish_write.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <string>

#include "core/checksum.hpp"

namespace cenote::manager {

namespace {

/// Checksums as a client gave them, one for each spec of each granted block. Errors: invalid_argument (another number).
rpc_outcome<block_checksums> arranged(std::span<const std::uint64_t> list, const extent_state& extent) {
  const std::size_t blocks = extent.states.size();
  const auto specs_at = [&](std::size_t block) { return extent.specs[extent.specs.size() == 1 ? 0 : block]; };
  block_checksums checksums;
  if (list.empty()) return checksums;
  std::size_t count = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    checksums.specs |= specs_at(i);
    count += static_cast<std::size_t>(std::popcount(specs_at(i)));
  }
  if (list.size() != count) {
    return refuse(answer_code::invalid_argument, "checksums has " + std::to_string(list.size()) +
                                                     "; right would be none, or " + std::to_string(count) +
                                                     ", one for each spec of each granted block");
  }
  const auto stride = static_cast<std::size_t>(std::popcount(checksums.specs));
  checksums.values.resize(blocks * stride);
  for (std::size_t i = 0; i < blocks; ++i) {
    for (std::uint64_t rest = specs_at(i); rest != 0; rest &= rest - 1, list = list.subspan(1)) {
      const auto spec = static_cast<std::size_t>(std::countr_zero(rest));
      checksums.values[i * stride + checksum_rank(checksums.specs, spec)] = list.front();
    }
  }
  return checksums;
}

}  // namespace

std::uint64_t finish_mark_of(const std::vector<bool>& success, std::span<const std::uint64_t> checksums) {
  std::vector<std::byte> bytes(success.size());
  std::ranges::transform(success, bytes.begin(), [](bool each) { return each ? std::byte{1} : std::byte{}; });
  std::uint64_t mark = checksum_of(bytes);
  if (!checksums.empty()) mark = checksum_of(checksums.data(), checksums.size_bytes(), mark);
  return mark | 1U;  // 0: not finished
}

std::unexpected<rpc_refusal> finish_write::refuse_session() const {
  return refuse(answer_code::session_not_found, "instance " + request_.instance + " has no session " +
                                                    request_.session.substr(0, 64) +
                                                    ": it never was, or its time is over");
}

rpc_outcome<> finish_write::compare(const finished_session& session, const session_name& name,
                                    std::uint64_t instance) const {
  if (session.nonce != name.nonce || session.instance != instance) return refuse_session();
  const auto success = mask_of(request_.success, session.blocks, "success_blocks");
  if (success && finish_mark_of(*success, request_.checksums) == session.finish_mark) return {};
  return refuse(answer_code::invalid_argument, "the session was finished with another success_blocks, or checksums");
}

rpc_outcome<> finish_write::finish_open(write_parts& parts, const session_name& name, session_place place,
                                        round_time now) {
  instance_state& instance = *parts.state.instance(place.instance);
  extent_state& extent = *instance.extent(place.table);
  if (extent.nonce != name.nonce) return refuse_session();
  const auto success = mask_of(request_.success, extent.states.size(), "success_blocks");
  if (!success) return std::unexpected(success.error());
  const auto checksums = arranged(request_.checksums, extent);
  if (!checksums) return std::unexpected(checksums.error());
  if (!checksums->empty()) instance.index->extents().set_checksums(extent.table, *checksums);
  const std::uint64_t mark = finish_mark_of(*success, request_.checksums);
  for (std::uint32_t i = 0; i < extent.states.size(); ++i) {
    if (extent.states[i] != location_state::writing) continue;  // removed meanwhile
    parts.changes.set_state(instance, extent, i, (*success)[i] ? location_state::serving : location_state::deleting);
  }
  parts.changes.close(instance, extent, unix_seconds(), mark);
  parts.changes.note(round_work::finish);
  parts.sessions.close(name.extent, extent.deadline);
  parts.sessions.remember(name.extent, {.instance = place.instance,
                                        .nonce = name.nonce,
                                        .finish_mark = mark,
                                        .blocks = static_cast<std::uint32_t>(success->size()),
                                        .expiry = now + write_sessions::memory});
  return {};
}

rpc_outcome<> finish_write::finish(write_parts& parts, round_time now) {
  const instance_state* const instance = parts.state.instance_called(request_.instance);
  if (instance == nullptr) {
    return refuse(answer_code::instance_not_exist, "there is no instance " + request_.instance);
  }
  const auto name = session_name::parse(request_.session);
  if (!name) return refuse_session();
  if (name->extent == 0) {
    if (!name->is_empty_of(instance->terms->number)) return refuse_session();
    const auto success = mask_of(request_.success, 0, "success_blocks");
    if (!success) return std::unexpected(success.error());
    if (request_.checksums.empty()) return {};
    return refuse(answer_code::invalid_argument,
                  "checksums are given for a session without blocks; right would be none");
  }
  const std::uint64_t number = instance->terms->number;
  if (const session_place* const place = parts.sessions.find(name->extent); place != nullptr) {
    return place->instance == number ? finish_open(parts, *name, *place, now) : refuse_session();
  }
  const finished_session* const session = parts.sessions.find_finished(name->extent, now);
  return session == nullptr ? refuse_session() : compare(*session, *name, number);
}

bool finish_write::advance(write_parts& parts, write_round& round) {
  outcome_ = finish(parts, round.now);
  return true;
}

void finish_write::answer(const result<>& committed) {
  if (!outcome_) {
    receive_(std::unexpected(std::move(outcome_.error())));
  } else if (!committed) {
    receive_(refuse_unwritten(committed.error()));
  } else {
    receive_({});
  }
}

void expire_session(write_parts& parts, std::uint64_t number) {
  const session_place* const place = parts.sessions.find(number);
  if (place == nullptr) return;
  instance_state& instance = *parts.state.instance(place->instance);
  extent_state& extent = *instance.extent(place->table);
  for (std::uint32_t i = 0; i < extent.states.size(); ++i) {
    if (extent.states[i] == location_state::writing) {
      parts.changes.set_state(instance, extent, i, location_state::deleting);
    }
  }
  parts.changes.close(instance, extent, unix_seconds(), 0);
  parts.sessions.close(number, extent.deadline);
}

}  // namespace cenote::manager
