// The C ABI: turns C structs into the session's types, and errors into a code and a sentence.
#include "client/cenote.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "client/c_api_support.hpp"

using cenote::error_code;
using cenote::fail;
using cenote::result;
using cenote::c_api::call;
using cenote::c_api::clear_results;
using cenote::c_api::failed;
using cenote::c_api::finish;
using cenote::c_api::free_handle;
using cenote::c_api::guarded;
using cenote::c_api::hand_out;
using cenote::c_api::hand_out_session;
using cenote::c_api::last_message;
using cenote::c_api::null_argument;
using cenote::c_api::session_object;
using cenote::c_api::versioned;
namespace client = cenote::client;

template <>
struct cenote::c_api::handle_traits<cenote_prefetch> {
  struct object : client::handle_object {
    object(cenote_session* owner, client::prefetch_ticket begin) noexcept : session(owner), ticket(std::move(begin)) {}
    object(const object&) = delete;
    object& operator=(const object&) = delete;
    ~object() override {
      static_cast<void>(call(session, [&](session_object& target) {
        target.impl->drop(ticket);
        return static_cast<int>(CENOTE_OK);
      }));
    }
    cenote_session* session;
    client::prefetch_ticket ticket;
  };
  static constexpr auto kind = client::handle_kind::prefetch;
};

namespace {

using prefetch_object = cenote::c_api::handle_traits<cenote_prefetch>::object;

/// A call about a prefetch is one about its session, too.
template <class Body>
int with_ticket(const cenote_prefetch* prefetch, Body&& body) noexcept {
  return call(prefetch, [&](prefetch_object& chain) {
    return call(chain.session, [&](session_object& target) { return body(*target.impl, chain.ticket); });
  });
}

// The two halves of the ABI must not drift apart.
static_assert(CENOTE_INTERNAL == static_cast<int>(error_code::internal));
static_assert(CENOTE_FORKED == static_cast<int>(error_code::forked));
static_assert(sizeof(cenote_reserved) == sizeof(client::reserved_block));
static_assert(offsetof(cenote_reserved, parts) == offsetof(client::reserved_block, parts));
static_assert(offsetof(cenote_reserved, state) == offsetof(client::reserved_block, state));
static_assert(sizeof(cenote_held) == sizeof(client::held_block));
static_assert(offsetof(cenote_held, slot) == offsetof(client::held_block, slot));
static_assert(sizeof(cenote_buffer) == sizeof(client::buffers::item));
static_assert(CENOTE_PREFETCH_DEFAULT == static_cast<int>(cenote::prefetch_policy::node_default));
static_assert(CENOTE_PREFETCH_BEST_EFFORT == static_cast<int>(cenote::prefetch_policy::best_effort));
static_assert(CENOTE_PREFETCH_WAIT_COMPLETE == static_cast<int>(cenote::prefetch_policy::wait_complete));
static_assert(CENOTE_PREFETCH_TIMEOUT == static_cast<int>(cenote::prefetch_policy::timeout));

cenote::key_batch batch_of(const cenote_keys& keys) noexcept {
  return {static_cast<const std::byte*>(keys.data), keys.count, keys.width};
}

client::buffers buffers_of(const cenote_buffers& list, std::size_t count) noexcept {
  if (list.list != nullptr) return client::buffers({reinterpret_cast<const client::buffers::item*>(list.list), count});
  return {static_cast<std::byte*>(list.base), list.bytes, list.stride, count};
}

/// False: null buffers, which is an error unless there is no key.
bool given(const cenote_buffers& list, const cenote_keys& keys) noexcept {
  return list.list != nullptr || list.base != nullptr || keys.count == 0;
}

std::optional<std::uint32_t> part_of(std::int32_t part) noexcept {
  if (part < 0) return std::nullopt;
  return static_cast<std::uint32_t>(part);
}

std::string text_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

result<cenote::instance_spec> spec_of(const cenote_spec& raw) {
  const auto given_spec = versioned(raw, "cenote_spec");
  if (!given_spec) return std::unexpected(given_spec.error());
  const cenote_spec& in = *given_spec;
  if (in.groups == nullptr && in.group_count != 0)
    return fail(error_code::invalid_argument, "groups is a null pointer");
  cenote::instance_spec out;
  out.id = text_of(in.id);
  out.model = text_of(in.model);
  out.dtype = text_of(in.dtype);
  out.layout = text_of(in.layout);
  out.tokens_per_block = in.tokens_per_block;
  out.hash_scheme = text_of(in.hash_scheme);
  out.fingerprint = text_of(in.fingerprint);
  out.instance_group = text_of(in.instance_group);
  for (std::size_t g = 0; g < in.group_count && g <= cenote::max_groups; ++g) {
    const cenote_group& group = in.groups[g];
    if (group.parts == nullptr && group.part_count != 0)
      return fail(error_code::invalid_argument, "parts is a null pointer");
    cenote::group_spec& added = out.groups.emplace_back();
    added.name = text_of(group.name);
    for (std::size_t p = 0; p < group.part_count && p <= cenote::max_parts; ++p) {
      added.parts.push_back({text_of(group.parts[p].name), group.parts[p].bytes});
    }
  }
  return out;
}

result<client::session_options> options_of(const cenote_options* raw) {
  client::session_options out;
  if (raw == nullptr) return out;
  const auto in = versioned(*raw, "cenote_options");
  if (!in) return std::unexpected(in.error());
  if (in->max_pins != 0) out.max_pins = in->max_pins;
  if (in->deadline_ns > static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::hours(24)).count())) {
    return fail(error_code::invalid_argument, "a deadline is at most 24 hours");
  }
  if (in->deadline_ns != 0) out.deadline = std::chrono::nanoseconds(in->deadline_ns);
  out.socket = text_of(in->socket);
  out.token = text_of(in->token);
  out.client_name = text_of(in->client_name);
  out.device = text_of(in->device);
  out.part = in->part;
  return out;
}

/// A time in whole milliseconds, no shorter than given.
std::chrono::milliseconds milliseconds_of(std::uint64_t nanoseconds) noexcept {
  return std::chrono::milliseconds(nanoseconds / 1'000'000 + (nanoseconds % 1'000'000 != 0 ? 1 : 0));
}

result<client::prefetch_options> prefetch_options_of(const cenote_prefetch_options* raw) {
  client::prefetch_options out;
  if (raw == nullptr) return out;
  const auto in = versioned(*raw, "cenote_prefetch_options");
  if (!in) return std::unexpected(in.error());
  if (in->policy > CENOTE_PREFETCH_TIMEOUT) {
    return fail(error_code::invalid_argument, "prefetch policy " + std::to_string(in->policy) + " is not known");
  }
  constexpr std::uint32_t all =
      CENOTE_PREFETCH_BASE | CENOTE_PREFETCH_PER_KI_TOKEN | CENOTE_PREFETCH_PREFILL_RATE | CENOTE_PREFETCH_THRESHOLD;
  if ((in->given & ~all) != 0) return fail(error_code::invalid_argument, "`given` names fields that are not known");
  out.policy = static_cast<cenote::memory::prefetch_policy>(in->policy);
  if ((in->given & CENOTE_PREFETCH_BASE) != 0) out.base = milliseconds_of(in->base_ns);
  if ((in->given & CENOTE_PREFETCH_PER_KI_TOKEN) != 0) out.per_ki_token = milliseconds_of(in->per_ki_token_ns);
  if ((in->given & CENOTE_PREFETCH_PREFILL_RATE) != 0) out.prefill_rate = in->prefill_tokens_per_s;
  if ((in->given & CENOTE_PREFETCH_THRESHOLD) != 0) out.threshold_tokens = in->threshold_tokens;
  out.trace = cenote::parse_traceparent(text_of(in->traceparent));
  return out;
}

}  // namespace

extern "C" {

const char* cenote_error_name(int code) {
  if (code < 0 || code > std::numeric_limits<std::uint16_t>::max()) return "unknown";
  return cenote::to_string(static_cast<error_code>(code)).data();  // a literal: it ends with a zero
}

const char* cenote_last_error(void) {
  return last_message().c_str();
}

uint32_t cenote_abi_version(void) {
  return (CENOTE_ABI_MAJOR << 16) | CENOTE_ABI_MINOR;
}

int cenote_attach(const cenote_spec* spec, const cenote_options* options, cenote_session** out) {
  return guarded([&] {
    if (spec == nullptr) return null_argument("spec");
    if (out == nullptr) return null_argument("out");
    *out = nullptr;
    auto parsed = spec_of(*spec);
    if (!parsed) return failed(parsed.error());
    auto chosen = options_of(options);
    if (!chosen) return failed(chosen.error());
    chosen->spec = std::move(*parsed);
    auto attached = client::session::attach(std::move(*chosen));
    if (!attached) return failed(attached.error());
    return hand_out_session(out, std::move(*attached));
  });
}

int cenote_close(cenote_session* session) {
  return call(session, [&](session_object& target) { return finish(target.impl->close()); });
}

void cenote_free(cenote_session* session) {
  free_handle(session, [](session_object& target) { static_cast<void>(target.impl->close()); });
}

int cenote_group_index(cenote_session* session, const char* name, uint32_t* out) {
  return call(session, [&](session_object& target) {
    if (name == nullptr || out == nullptr) return null_argument("an argument");
    const auto found = target.impl->spec().find_group(name);
    if (!found) return failed({error_code::invalid_argument, "this instance has no group `" + std::string(name) + "`"});
    *out = *found;
    return static_cast<int>(CENOTE_OK);
  });
}

int cenote_part_index(cenote_session* session, uint32_t group, const char* name, uint32_t* out) {
  return call(session, [&](session_object& target) {
    if (name == nullptr || out == nullptr) return null_argument("an argument");
    const auto& groups = target.impl->spec().groups;
    if (group >= groups.size()) return failed({error_code::invalid_argument, "there is no group of that number"});
    const auto& parts = groups[group].parts;
    const auto found = std::ranges::find(parts, name, &cenote::part_spec::name);
    if (found == parts.end()) {
      return failed(
          {error_code::invalid_argument, "group `" + groups[group].name + "` has no part `" + std::string(name) + "`"});
    }
    *out = static_cast<uint32_t>(found - parts.begin());
    return static_cast<int>(CENOTE_OK);
  });
}

int cenote_match_prefix(cenote_session* session, cenote_keys keys, uint32_t group, cenote_match* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    return finish(target.impl->match_prefix(batch_of(keys), group), out);
  });
}

int cenote_locate(cenote_session* session, cenote_keys keys, uint32_t group, uint64_t timeout_ns, cenote_match* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    constexpr std::uint64_t longest = std::uint64_t{1} << 60;  // no overflow of the clock
    const std::chrono::nanoseconds patience(std::min(timeout_ns, longest));
    return finish(target.impl->locate(batch_of(keys), group, patience), out);
  });
}

int cenote_asks_tiers(cenote_session* session, uint32_t* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    *out = target.impl->asks_tiers() ? 1 : 0;
    return static_cast<int>(CENOTE_OK);
  });
}

int cenote_match_window(cenote_session* session, cenote_keys keys, uint32_t group, size_t window, cenote_match* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    return finish(target.impl->match_window(batch_of(keys), group, window), out);
  });
}

int cenote_exists(cenote_session* session, cenote_keys keys, uint32_t group, uint8_t* present) {
  return call(session, [&](session_object& target) {
    if (present == nullptr && keys.count != 0) return null_argument("present");
    return finish(target.impl->exists(batch_of(keys), group, std::span(present, keys.count)));
  });
}

int cenote_acquire(cenote_session* session, cenote_keys keys, uint32_t group, cenote_held* out, size_t* count) {
  clear_results(count);
  return call(session, [&](session_object& target) {
    if (count == nullptr || (out == nullptr && keys.count != 0)) return null_argument("an argument");
    const std::span held(reinterpret_cast<client::held_block*>(out), keys.count);
    return finish(target.impl->acquire(batch_of(keys), group, held), count);
  });
}

int cenote_release(cenote_session* session, const uint32_t* slots, size_t count) {
  return call(session, [&](session_object& target) {
    if (slots == nullptr && count != 0) return null_argument("slots");
    return finish(target.impl->release(std::span(slots, count)));
  });
}

int cenote_release_held(cenote_session* session, const cenote_held* held, size_t count) {
  return call(session, [&](session_object& target) {
    if (held == nullptr && count != 0) return null_argument("held");
    return finish(target.impl->release(std::span(reinterpret_cast<const client::held_block*>(held), count)));
  });
}

int cenote_get_into(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part, cenote_buffers targets,
                    size_t* copied) {
  clear_results(copied);
  return call(session, [&](session_object& target) {
    if (copied == nullptr || !given(targets, keys)) return null_argument("an argument");
    return finish(target.impl->get_into(batch_of(keys), group, part_of(part), buffers_of(targets, keys.count)), copied);
  });
}

int cenote_prefetch_start(cenote_session* session, cenote_keys keys, uint32_t group, cenote_prefetch** out) {
  return cenote_prefetch_start_with(session, keys, group, nullptr, out);
}

int cenote_prefetch_start_with(cenote_session* session, cenote_keys keys, uint32_t group,
                               const cenote_prefetch_options* options, cenote_prefetch** out) {
  clear_results(out);
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    const auto chosen = prefetch_options_of(options);
    if (!chosen) return failed(chosen.error());
    auto ticket = target.impl->prefetch(batch_of(keys), group, *chosen);
    if (!ticket) return failed(ticket.error());
    return hand_out(out, std::make_unique<prefetch_object>(session, std::move(*ticket)));
  });
}

int cenote_prefetch_wait(cenote_prefetch* prefetch, uint64_t timeout_ns, uint32_t* done, uint64_t* length) {
  return with_ticket(prefetch, [&](client::session& target, client::prefetch_ticket& ticket) {
    if (done == nullptr || length == nullptr) return null_argument("done or length");
    constexpr std::uint64_t longest = std::uint64_t{1} << 60;  // no overflow of the clock
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min<std::uint64_t>(timeout_ns, longest));
    const auto ended = target.wait(ticket, until);
    if (!ended) return failed(ended.error());
    *done = *ended ? 1 : 0;
    if (*ended) {
      *length = ticket.length;
      return static_cast<int>(CENOTE_OK);
    }
    return finish(target.progress(ticket), length);
  });
}

int cenote_prefetch_length(cenote_prefetch* prefetch, uint64_t* length) {
  return with_ticket(prefetch, [&](client::session& target, client::prefetch_ticket& ticket) {
    return length == nullptr ? null_argument("length") : finish(target.progress(ticket), length);
  });
}

int cenote_prefetch_stop(cenote_prefetch* prefetch) {
  return with_ticket(
      prefetch, [](client::session& target, client::prefetch_ticket& ticket) { return finish(target.stop(ticket)); });
}

int cenote_prefetch_cancel(cenote_prefetch* prefetch) {
  return with_ticket(
      prefetch, [](client::session& target, client::prefetch_ticket& ticket) { return finish(target.cancel(ticket)); });
}

void cenote_prefetch_free(cenote_prefetch* prefetch) {
  free_handle(prefetch);
}

int cenote_wants_spans(cenote_session* session, uint32_t* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    *out = target.impl->wants_spans() ? 1 : 0;
    return static_cast<int>(CENOTE_OK);
  });
}

int cenote_trace_load(cenote_session* session, const cenote_load_span* load) {
  return call(session, [&](session_object& target) {
    if (load == nullptr) return null_argument("load");
    const auto given = versioned(*load, "cenote_load_span");
    if (!given) return failed(given.error());
    const auto parent = cenote::parse_traceparent(text_of(given->traceparent));
    return finish(target.impl->trace_load({.parent = parent.value_or(cenote::trace_context()),
                                           .begin_ns = given->begin_ns,
                                           .end_ns = given->end_ns,
                                           .blocks = given->blocks_asked,
                                           .loaded = given->blocks_loaded,
                                           .bytes = given->bytes}));
  });
}

int cenote_publish(cenote_session* session, const void* request, size_t request_size, cenote_keys keys, uint32_t group,
                   uint64_t first, int ends, uint64_t* published) {
  return call(session, [&](session_object& target) {
    if (request == nullptr) return null_argument("request");
    const std::span name(static_cast<const std::byte*>(request), request_size);
    const auto place = first == CENOTE_APPEND ? std::nullopt : std::optional(first);
    return finish(target.impl->publish(name, batch_of(keys), group, place, ends != 0), published);
  });
}

int cenote_follow(cenote_session* session, const void* request, size_t request_size, const char* node, uint32_t group,
                  uint64_t timeout_ns, cenote_prefetch** out) {
  clear_results(out);
  return call(session, [&](session_object& target) {
    if (request == nullptr || out == nullptr) return null_argument("request or out");
    constexpr std::uint64_t longest = std::uint64_t{1} << 60;  // no overflow of the clock
    const std::span name(static_cast<const std::byte*>(request), request_size);
    auto ticket = target.impl->follow(name, text_of(node), group,
                                      std::chrono::nanoseconds(std::min<std::uint64_t>(timeout_ns, longest)));
    if (!ticket) return failed(ticket.error());
    return hand_out(out, std::make_unique<prefetch_object>(session, std::move(*ticket)));
  });
}

int cenote_prefetch_keys(const cenote_prefetch* prefetch, cenote_keys* keys) {
  return with_ticket(prefetch, [&](client::session&, const client::prefetch_ticket& ticket) {
    if (keys == nullptr) return null_argument("keys");
    const auto known = ticket.batch();
    *keys = {known.data, known.count, known.width};
    return static_cast<int>(CENOTE_OK);
  });
}

int cenote_put(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part, cenote_buffers sources,
               uint64_t* stored) {
  clear_results(stored);
  return call(session, [&](session_object& target) {
    if (!given(sources, keys)) return null_argument("an argument");
    return finish(target.impl->put(batch_of(keys), group, part_of(part), buffers_of(sources, keys.count)), stored);
  });
}

int cenote_put_async(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part, cenote_buffers sources,
                     uint64_t* stored) {
  clear_results(stored);
  return call(session, [&](session_object& target) {
    if (!given(sources, keys)) return null_argument("an argument");
    return finish(target.impl->put_async(batch_of(keys), group, part_of(part), buffers_of(sources, keys.count)),
                  stored);
  });
}

int cenote_flush(cenote_session* session, uint64_t* stored) {
  return call(session, [&](session_object& target) { return finish(target.impl->flush(), stored); });
}

int cenote_reserve(cenote_session* session, cenote_keys keys, uint32_t group, int32_t part, cenote_reserved* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr && keys.count != 0) return null_argument("out");
    const std::span blocks(reinterpret_cast<client::reserved_block*>(out), keys.count);
    return finish(target.impl->reserve(batch_of(keys), group, part_of(part), blocks));
  });
}

int cenote_commit(cenote_session* session, const cenote_reserved* blocks, size_t count, uint64_t* completed) {
  return call(session, [&](session_object& target) {
    if (blocks == nullptr && count != 0) return null_argument("blocks");
    const std::span list(reinterpret_cast<const client::reserved_block*>(blocks), count);
    return finish(target.impl->commit(list), completed);
  });
}

int cenote_abandon(cenote_session* session, const cenote_reserved* blocks, size_t count) {
  return call(session, [&](session_object& target) {
    if (blocks == nullptr && count != 0) return null_argument("blocks");
    const std::span list(reinterpret_cast<const client::reserved_block*>(blocks), count);
    return finish(target.impl->release(list));
  });
}

int cenote_remove(cenote_session* session, cenote_keys keys, uint32_t group, uint64_t* removed) {
  return call(session,
              [&](session_object& target) { return finish(target.impl->remove(batch_of(keys), group), removed); });
}

int cenote_keep(cenote_session* session, cenote_keys keys, uint32_t group, int kept, uint64_t* changed) {
  return call(session, [&](session_object& target) {
    return finish(target.impl->keep(batch_of(keys), group, kept != 0), changed);
  });
}

int cenote_clear(cenote_session* session) {
  return call(session, [&](session_object& target) { return finish(target.impl->clear()); });
}

int cenote_unconfirmed(cenote_session* session, uint64_t* removals, uint64_t* nodes) {
  return call(session, [&](session_object& target) {
    if (removals == nullptr || nodes == nullptr) return null_argument("removals or nodes");
    const auto counted = target.impl->unconfirmed();
    if (!counted) return failed(counted.error());
    *removals = counted->removals;
    *nodes = counted->nodes;
    return finish(result<void>());
  });
}

int cenote_barrier(cenote_session* session) {
  return call(session, [&](session_object& target) { return finish(target.impl->barrier()); });
}

int cenote_stats_of(cenote_session* session, cenote_stats* out) {
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    const auto checked = versioned(*out, "cenote_stats");
    if (!checked) return failed(checked.error());
    const auto counted = target.impl->stats();
    if (!counted) return failed(counted.error());
    const client::session_stats& now = *counted;
    cenote_stats filled{};
    filled.struct_size = static_cast<uint32_t>(std::min<std::size_t>(out->struct_size, sizeof(cenote_stats)));
    filled.session = now.session;
    filled.keys_looked_up = now.keys_looked_up;
    filled.keys_found = now.keys_found;
    filled.blocks_pinned = now.blocks_pinned;
    filled.blocks_copied_out = now.blocks_copied_out;
    filled.bytes_copied_out = now.bytes_copied_out;
    filled.blocks_stored = now.blocks_stored;
    filled.bytes_copied_in = now.bytes_copied_in;
    filled.pins_in_use = now.pins_in_use;
    filled.pin_slots = now.pin_slots;
    filled.reservations = now.reservations;
    filled.slabs_mapped = now.slabs_mapped;
    filled.touches_dropped = now.touches_dropped;
    filled.reattaches = now.reattaches;
    filled.slabs_registered = now.slabs_registered;
    filled.slabs_refused = now.slabs_refused;
    filled.waiting_for_device = now.waiting_for_device;
    filled.bytes_registered = now.bytes_registered;
    filled.registration_ns = now.registration_ns;
    std::memcpy(out, &filled, filled.struct_size);
    return static_cast<int>(CENOTE_OK);
  });
}

}  // extern "C"
