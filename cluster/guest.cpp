#include "cluster/guest.hpp"

#include <algorithm>
#include <ranges>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/shared_bound.hpp"
#include "core/stored_identity.hpp"
#include "memory/lower_hints.hpp"
#include "memory/prefetch_terms.hpp"

namespace cenote::cluster {

namespace {

using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;
using peer::block_answer;
using peer::frame_type;

constexpr std::size_t most_queued = 64;  // fetches of one node; what is beyond is answered `missing`
constexpr std::size_t most_left = 64;    // instances

submission entry_of(operation what, std::uint32_t group, std::uint32_t request, std::span<const std::byte> key = {}) {
  submission made;
  made.op = what;
  made.group = static_cast<std::uint16_t>(group);
  made.request = request;
  made.key_size = static_cast<std::uint8_t>(key.size());
  std::ranges::copy(key, made.key);
  return made;
}

/// Ends a request of several entries.
void close_request(std::vector<submission>& entries) {
  for (std::uint32_t i = 0; i < entries.size(); ++i) entries[i].index = i;
  if (!entries.empty()) entries.back().flags |= submission::flag_last;
}

bool is_padded(const group_spec& group) noexcept {
  return group.stride() != group.block_bytes();
}

/// Keys of one width, back to back.
template <std::ranges::sized_range Keys>
std::vector<std::byte> flat(const Keys& keys) {
  std::vector<std::byte> all;
  all.reserve(keys.size() * max_key_bytes);
  for (const full_key& each : keys) all.insert(all.end(), each.view().begin(), each.view().end());
  return all;
}

std::vector<std::byte> flat(const peer::block_request& asked) {
  return flat(asked.blocks | std::views::values);
}

key_batch batch_of(const std::vector<std::byte>& keys, std::size_t width, std::size_t first = 0) {
  return {keys.data() + first * width, keys.size() / width - first, width};
}

}  // namespace

void guest::heard(peer::link_id from, frame_type type, std::uint64_t request, std::span<const std::byte> body) {
  switch (type) {
    case frame_type::bind: return bind(from, request, body);
    case frame_type::unbind: return unbind(from, body);
    case frame_type::locate: return locate(from, request, body);
    case frame_type::fetch: return fetch(from, body, true);
    case frame_type::fetch_here: return fetch(from, body, false);
    case frame_type::offer: return offer(from, request, body);
    case frame_type::forget: return forget(from, request, body);
    case frame_type::write_off: return learn_write_offs(from, request, body);
    case frame_type::check: return check(from, body);
    default: return;  // a later version's
  }
}

void guest::misbehaves(peer::link_id who, const std::string& how) {
  count(pool_.counters.refused);
  pool_.close(who, "the other node " + how);
}

// ---------------------------------------------------------------------------------------------- instances

guest::hosted* guest::find(peer::link_id user, std::uint32_t handle) {
  const auto found = instances_.find(handle);
  if (found == instances_.end() || !found->second.users.contains(user)) return nullptr;
  return stays_here(found->second.spec) ? nullptr : &found->second;
}

bool guest::stays_here(const instance_spec& spec) const {
  return pool_.kept_here.load()->contains(spec.paying_group());
}

/// The reason for which the node gets nothing of the instance; empty: there is none.
std::string guest::right_refusal(peer::link_id node, const instance_spec& spec,
                                 const std::optional<peer::proof>& right) const {
  const pool_member* const asker = pool_.member_on(node);
  const peer::ticket key = asker != nullptr ? asker->key : peer::ticket{};
  return pool_.rights.load()->refusal(bind_side::asker, spec, key, right);
}

guest::hosted* guest::find_identity(instance_identity identity) {
  const auto found =
      std::ranges::find_if(instances_, [&](const auto& each) { return each.second.identity == identity; });
  return found == instances_.end() ? nullptr : &found->second;
}

void guest::refuse(peer::link_id to, std::uint64_t request, const std::string& why) {
  count(pool_.counters.refused);
  pool_.send(to, frame_type::bound, request, peer::encode(peer::bind_answer{.why = why}));
}

/// An instance that several nodes use counts for the one with the oldest link.
std::optional<error> guest::no_room_for(peer::link_id node) const {
  const auto opened = std::ranges::count_if(instances_, [&](const auto& entry) {
    const auto& users = entry.second.users;
    return !users.empty() && *users.begin() == node;
  });
  const pool_member* const asker = pool_.member_on(node);
  return share_refusal(
      node_bound::guest_instances, most_instances,
      {.all = instances_.size(), .user = static_cast<std::uint64_t>(opened), .group = 0},
      {.uid = share_holder::other_node, .group = asker != nullptr ? asker->name : std::string("of an unknown name")});
}

void guest::bind(peer::link_id from, std::uint64_t request, std::span<const std::byte> body) {
  auto asked = peer::decode_bind_request(body);
  if (!asked) return misbehaves(from, asked.error().message());
  byte_reader reader(asked->spec);
  auto spec = decode_instance_spec(reader);
  if (spec) {
    if (const auto sound = validate(*spec); !sound) spec = std::unexpected(sound.error());
  }
  if (!spec) return refuse(from, request, spec.error().message());
  if (identity_of(*spec) != asked->identity) return refuse(from, request, "the identity is not that of the spec");
  if (stays_here(*spec))
    return refuse(from, request, "blocks of group `" + spec->paying_group() + "` stay on this machine");
  if (const auto refusal = right_refusal(from, *spec, asked->right); !refusal.empty())
    return refuse(from, request, refusal);
  hosted* of = find_identity(asked->identity);
  if (of == nullptr) {
    if (const auto full = no_room_for(from)) return refuse(from, request, full->message());
  }
  if (of != nullptr && of->spec != *spec) {
    return refuse(from, request,
                  "another instance has this identity: " + first_difference(of->spec, *spec).value_or("another id"));
  }
  if (of == nullptr) of = &host(asked->identity, std::move(*spec));
  of->users.insert(from);
  of->waiting.emplace_back(from, request);
  learn_cleared(asked->identity, asked->cleared, asked->spec);
  if (of->session && of->clears == 0) answer_binds(*of);
}

/// The instance of a link that uses it no more is closed with the next flush, if nobody else does.
void guest::unbind(peer::link_id from, std::span<const std::byte> body) {
  const auto asked = peer::decode_unbind_request(body);
  if (!asked) return misbehaves(from, asked.error().message());
  if (const auto found = instances_.find(asked->handle); found != instances_.end()) found->second.users.erase(from);
}

/// Opens the instance; its handle is told to nobody before that.
guest::hosted& guest::host(instance_identity identity, instance_spec spec) {
  const std::uint32_t handle = next_handle_++;
  hosted& made = instances_[handle];
  made.handle = handle;
  made.identity = identity;
  made.spec = std::move(spec);
  room_.open(made.spec, [this, handle](result<guest_session_ptr> how) { opened(handle, std::move(how)); });
  return made;
}

/// For what another node removes of it. Null: the spec is not that of the instance, or too many are open.
guest::hosted* guest::host(instance_identity identity, std::span<const std::byte> spec) {
  byte_reader reader(spec);
  auto read = decode_instance_spec(reader);
  if (!read || !validate(*read) || identity_of(*read) != identity || instances_.size() >= most_opened) return nullptr;
  return &host(identity, std::move(*read));
}

void guest::opened(std::uint32_t handle, result<guest_session_ptr> how) {
  const auto found = instances_.find(handle);
  if (found == instances_.end()) {  // nobody wants it any more
    if (how) room_.close((*how)->number);
    return;
  }
  hosted& of = found->second;
  if (!how) {
    for (const auto& [link, request] : of.waiting) refuse(link, request, how.error().message());
    if (of.must_clear) pool_.forget_cleared(of.identity);
    const auto told = std::move(of.when_cleared);
    const auto waiting = std::move(of.when_open);
    instances_.erase(found);
    for (const auto& each : told) each(how.error().message());
    for (const auto& each : waiting) each(how.error().message());
    return;
  }
  of.session = std::move(*how);
  if (of.must_clear) clear_unheard(of);
  for (const auto& each : std::exchange(of.when_open, {})) each({});
  if (of.clears == 0) answer_binds(of);
}

/// Nobody uses it: it is closed.
void guest::leave(const hosted& of) {
  room_.close(of.session->number);
  std::erase_if(left_, [&](const left_instance& each) { return !is_recent(each.stored_at); });
  if (!is_recent(of.stored_at)) return;
  std::erase_if(left_, [&](const left_instance& each) { return each.identity == of.identity; });
  if (left_.size() >= most_left) left_.pop_front();
  left_.push_back({of.identity, of.spec, *of.stored_at});
}

/// Whether it may be later than a clear that is only now heard of.
bool guest::is_recent(std::optional<pool::steady_time> stored_at) const {
  return stored_at && *stored_at + clear_lag > pool_.now();
}

void guest::answer_binds(hosted& of) {
  for (const auto& [link, request] : std::exchange(of.waiting, {})) {
    peer::bind_answer answer{.handle = of.handle, .cleared = pool_.told_cleared(of.identity)};
    if (const pool_member* const asker = pool_.member_on(link))
      answer.right = pool_.rights.load()->proof_of(bind_side::home, of.spec, asker->key);
    pool_.send(link, frame_type::bound, request, peer::encode(answer));
  }
}

/// An instance that nobody else uses here is opened for it: this node's own blocks are older than the clear, too. It is
/// one that this node has bound, and closed with the next flush: most_instances is about those of others.
void guest::learn_cleared(instance_identity identity, std::uint64_t number, std::span<const std::byte> spec) {
  number = pool::credible_clear(number);
  if (number <= pool_.cleared(identity)) return;
  hosted* of = find_identity(identity);
  if (of == nullptr) of = host(identity, spec);
  if (of == nullptr) return;  // it is told again
  pool_.note_cleared(identity, number);
  if (of->session) {
    clear_unheard(*of);
  } else {
    of->must_clear = true;
  }
}

void guest::clear_unheard(hosted& of) {
  clear(of, [this, identity = of.identity, told = std::exchange(of.when_cleared, {})](std::uint64_t,
                                                                                      const std::string& why) {
    if (!why.empty()) pool_.forget_cleared(identity);
    for (const auto& each : told) each(why);
  });
}

/// Others may have stored here since this node's own blocks went, and not have heard of the clear. Which of these
/// blocks are older than it nobody can say.
void guest::clear_hosted(instance_identity identity, std::function<void(std::string)> then) {
  hosted* of = find_identity(identity);
  const left_instance* const left = find_left(identity);
  const bool is_clearing = of != nullptr && (of->must_clear || of->clears != 0);
  if (left == nullptr && !is_clearing && (of == nullptr || !is_recent(of->stored_at))) {
    pool_.note_carried_out(identity);
    return then({});
  }
  if (of == nullptr) of = &host(identity, left->spec);
  of->when_cleared.push_back(std::move(then));
  if (of->session) return clear_unheard(*of);
  of->must_clear = true;
}

/// The same of keys: a block that was reserved before this node's own went would be stored behind the removal.
void guest::remove_hosted(instance_identity identity, const std::vector<block_key>& keys,
                          std::function<void(std::string)> then) {
  hosted* of = find_identity(identity);
  const left_instance* const left = find_left(identity);
  if (left == nullptr && (of == nullptr || !is_recent(of->stored_at))) return then({});
  if (of == nullptr) of = &host(identity, left->spec);
  run_open(
      *of,
      [this, keys, then](hosted& open) {
        remove(open, keys, [then](std::uint64_t, const std::string& reason) { then(reason); });
      },
      then);
}

/// Null: nothing was stored to it lately.
const guest::left_instance* guest::find_left(instance_identity identity) const {
  const auto found = std::ranges::find(left_, identity, &left_instance::identity);
  return found == left_.end() || !is_recent(found->stored_at) ? nullptr : &*found;
}

/// Now, or when its session is there; `on_failure`: there will be none.
void guest::run_open(hosted& instance, std::function<void(hosted&)> then,
                     std::function<void(const std::string&)> on_failure) {
  if (instance.session) return then(instance);
  instance.when_open.emplace_back([this, handle = instance.handle, then = std::move(then),
                                   on_failure = std::move(on_failure)](const std::string& reason) {
    const auto found = instances_.find(handle);
    if (found == instances_.end()) return on_failure(reason);
    then(found->second);
  });
}

void guest::closed(peer::link_id which) {
  misses_.erase(which);
  for (auto each = deliveries_.lower_bound({which, 0}); each != deliveries_.end() && each->first.first == which;) {
    end_delivery(each->first, std::nullopt);
    each = deliveries_.lower_bound({which, 0});
  }
  for (auto each = loans_.lower_bound({which, 0}); each != loans_.end() && each->first.first == which;) {
    const auto next = std::next(each);
    if (!each->second.is_given) end_loan(each);  // the others end with `sent`
    each = next;
  }
  usage_.erase(which);
  for (auto& [handle, of] : instances_) {
    of.users.erase(which);
    std::erase_if(of.waiting, [&](const auto& each) { return each.first == which; });
  }
}

// ---------------------------------------------------------------------------------------------- reads

void guest::locate(peer::link_id from, std::uint64_t request, std::span<const std::byte> body) {
  const auto asked = peer::decode_locate_request(body);
  if (!asked) return misbehaves(from, asked.error().message());
  hosted* const of = find(from, asked->handle);
  peer::locate_answer answer;
  answer.held.resize(asked->keys.size());
  const bool is_open = of != nullptr && of->session && !lacks_clear(*of, asked->cleared);
  if (is_open && asked->group < of->spec.groups.size() && !asked->keys.empty()) {
    const std::vector<std::byte> keys = flat(asked->keys);
    std::vector<std::uint8_t> here(asked->keys.size());
    const key_batch batch = batch_of(keys, asked->keys.front().size);
    of->session->lookup.find_each(batch, asked->group, here);
    of->session->lookup.add_lower(batch, asked->group, here);
    for (std::size_t i = 0; i < here.size(); ++i) answer.held[i] = here[i] != 0;
  }
  pool_.send(from, frame_type::located, request, peer::encode(answer));
}

void guest::fetch(peer::link_id from, std::span<const std::byte> body, bool may_go_elsewhere) {
  auto asked = peer::decode_block_request(body);
  if (!asked) return misbehaves(from, asked.error().message());
  if (std::ranges::any_of(asked->blocks, [](const auto& each) { return is_offer(each.first); }))
    return misbehaves(from, "names blocks that it asks for as blocks that are offered");
  hosted* const of = find(from, asked->handle);
  queued_fetch wanted{std::move(*asked), true, may_go_elsewhere, pool_.now() + fetch_limit};
  const bool is_open = of != nullptr && of->session && !lacks_clear(*of, wanted.asked.cleared);
  if (is_open && wanted.asked.group < of->spec.groups.size() && !wanted.asked.blocks.empty()) {
    auto& waiting = usage_[from].fetches;
    if (!waiting.empty() || is_busy_with_others(from)) send_elsewhere(from, *of, wanted);
    if (wanted.asked.blocks.empty()) return;
    if (waiting.empty()) return lend(from, *of, std::move(wanted));
    return queue(from, std::move(wanted), false);
  }
  answer_missing(from, wanted.asked);
}

/// Another node got wrong bytes of blocks that lie here. One batch at a time is passed on, however many
/// such frames come.
void guest::check(peer::link_id sender, std::span<const std::byte> body) {
  const auto asked = peer::decode_block_request(body);
  if (!asked) return misbehaves(sender, asked.error().message());
  hosted* const instance = find(sender, asked->handle);
  if (instance == nullptr || !instance->session || instance->is_checking ||
      asked->group >= instance->spec.groups.size())
    return;
  std::vector<submission> entries;
  entries.reserve(asked->blocks.size());
  for (const auto& [token, key] : asked->blocks)
    entries.push_back(entry_of(operation::check, asked->group, 0, key.view()));
  if (entries.empty()) return;
  close_request(entries);
  instance->is_checking = true;
  room_.run(instance->session->number, std::move(entries), false,
            [this, handle = instance->handle](const std::vector<completion>&) {
              if (const auto still = instances_.find(handle); still != instances_.end())
                still->second.is_checking = false;
            });
}

/// True when the asker knows of a clear that is not carried out here yet. Then nothing of the instance is here, and the
/// clear is begun: the asker may be the only node that knows of it.
bool guest::lacks_clear(const hosted& instance, std::optional<std::uint64_t> cleared) {
  if (!cleared || pool::credible_clear(*cleared) <= pool_.carried_out(instance.identity)) return false;
  learn_cleared(instance.identity, *cleared, {});  // it is open: no spec is needed
  return true;
}

/// Pins what is here, and sends it; what only a tier below has comes up first. What is being removed is missing.
void guest::lend(peer::link_id to, hosted& of, queued_fetch wanted) {
  std::erase_if(wanted.asked.blocks, [&](const auto& block) {
    const auto& [token, key] = block;
    const bool is_removed = pool_.removals.has(of.identity, reduce_key(key.view(), wanted.asked.group), pool_.now());
    if (is_removed) misses_[to].emplace_back(token, block_answer::missing);
    return is_removed;
  });
  std::vector<place> lent;
  const peer::block_request absent = pin_present(to, of, wanted, lent);
  if (!absent.blocks.empty()) answer_absent(to, of, absent, wanted.may_bring_up);
  touch(of, wanted.asked.group, lent);
  send_loans(of, std::move(lent));
}

/// Half of what one node may be sent at a time is on its way to others.
bool guest::is_busy_with_others(peer::link_id than) const {
  const auto used = usage_.find(than);
  const std::uint64_t mine = used == usage_.end() ? 0 : used->second.loans;
  return 2 * (lent_ - mine) >= options_.window;
}

/// Of the blocks those that another node was sent lately are to be had there.
void guest::send_elsewhere(peer::link_id to, const hosted& of, queued_fetch& rest) {
  const pool_member* const asker = pool_.member_on(to);
  if (!std::exchange(rest.may_go_elsewhere, false) || asker == nullptr) return;
  std::map<std::string, std::vector<std::uint64_t>> by_node;
  std::erase_if(rest.asked.blocks, [&](const auto& each) {
    const auto& [token, key] = each;
    const std::string& name = borrowers_.borrower(of.identity, reduce_key(key.view(), rest.asked.group));
    const bool is_there =
        !name.empty() && name != asker->name &&
        std::ranges::find(pool_.members().others, name, &pool_member::name) != pool_.members().others.end();
    if (is_there) by_node[name].push_back(token);
    return is_there;
  });
  for (auto& [name, tokens] : by_node) {
    count(pool_.counters.sent_elsewhere, tokens.size());
    pool_.send(to, frame_type::elsewhere, 0, peer::encode(peer::elsewhere_answer{name, std::move(tokens)}));
  }
}

/// How many blocks may be pinned now.
std::size_t guest::room_for(peer::link_id to, std::uint64_t stride) const {
  const auto used = usage_.find(to);
  const std::uint64_t mine = used == usage_.end() ? 0 : used->second.loans;
  const std::uint64_t of_link = options_.window - std::min(options_.window, mine);
  const std::uint64_t of_all = options_.most_lent - std::min(options_.most_lent, lent_);
  return std::max<std::size_t>(std::min(of_link, of_all) / stride, lent_ == 0 ? 1 : 0);
}

/// `is_begun`: what waited before comes after it.
void guest::queue(peer::link_id to, queued_fetch wanted, bool is_begun) {
  auto& fetches = usage_[to].fetches;
  if (fetches.size() >= most_queued) return answer_missing(to, wanted.asked);
  pool_.wake_at(wanted.until);
  fetches.insert(is_begun ? fetches.begin() : fetches.end(), std::move(wanted));
}

void guest::answer_missing(peer::link_id to, const peer::block_request& asked) {
  for (const auto& [token, key] : asked.blocks) misses_[to].emplace_back(token, block_answer::missing);
}

void guest::serve_queues() {
  for (auto& [link, used] : usage_) {
    for (std::size_t left = used.fetches.size(); left > 0; --left) {
      hosted* const of = find(link, used.fetches.front().asked.handle);
      if (of != nullptr && room_for(link, of->spec.groups[used.fetches.front().asked.group].stride()) == 0) break;
      queued_fetch next = std::move(used.fetches.front());
      used.fetches.pop_front();
      if (of != nullptr)
        lend(link, *of, std::move(next));
      else
        answer_missing(link, next.asked);
    }
  }
}

/// Who asked has given up long before, as a rule. Returns when the next one is due.
pool::steady_time guest::end_overdue_fetches(pool::steady_time now) {
  auto next = pool::steady_time::max();
  for (auto& [link, used] : usage_) {
    std::erase_if(used.fetches, [&, to = link](const queued_fetch& each) {
      if (each.until > now) {
        next = std::min(next, each.until);
        return false;
      }
      answer_missing(to, each.asked);
      return true;
    });
  }
  return next;
}

/// Returns those that are not here. What there is no room for waits.
peer::block_request guest::pin_present(peer::link_id to, hosted& of, const queued_fetch& wanted,
                                       std::vector<place>& lent) {
  const peer::block_request& asked = wanted.asked;
  const std::uint64_t stride = of.spec.groups[asked.group].stride();
  const std::vector<std::byte> keys = flat(asked);
  const std::size_t width = asked.blocks.empty() ? 1 : asked.blocks.front().second.size;
  std::vector<memory::pin> pins(asked.blocks.size());
  peer::block_request absent{.handle = asked.handle, .group = asked.group, .blocks = {}};
  for (std::size_t next = 0; next < asked.blocks.size();) {
    key_batch rest = batch_of(keys, width, next);
    rest.count = std::min(rest.count, room_for(to, stride));
    const auto held = rest.count == 0 ? result<std::size_t>(fail(error_code::limit_exceeded, "no room"))
                                      : of.session->lookup.pin_prefix(rest, asked.group, std::span(pins).subspan(next));
    if (!held) {
      const auto first = asked.blocks.begin() + static_cast<std::ptrdiff_t>(next);
      queued_fetch waits{{.handle = asked.handle, .group = asked.group, .blocks = {first, asked.blocks.end()}},
                         wanted.may_bring_up,
                         wanted.may_go_elsewhere,
                         wanted.until};
      send_elsewhere(to, of, waits);
      if (!waits.asked.blocks.empty()) queue(to, std::move(waits), true);
      break;
    }
    for (const std::size_t end = next + *held; next < end; ++next) {
      const auto& [token, key] = asked.blocks[next];
      const auto [at, is_new] = loans_.try_emplace({to, token}, loan{of.handle, asked.group, key, pins[next], stride});
      if (is_new) {
        usage_[to].loans += stride;
        lent_ += stride;
        lent.push_back(at->first);
      } else {
        of.session->lookup.unpin(std::span(pins).subspan(next, 1));  // it names one block twice
      }
    }
    if (*held < rest.count) absent.blocks.push_back(asked.blocks[next++]);
  }
  return absent;
}

void guest::answer_absent(peer::link_id to, hosted& of, const peer::block_request& absent, bool may_bring_up) {
  const std::vector<std::byte> keys = flat(absent);
  std::vector<std::uint8_t> below(absent.blocks.size());
  if (may_bring_up)
    of.session->lookup.add_lower(batch_of(keys, absent.blocks.front().second.size), absent.group, below);
  peer::block_request wanted{.handle = absent.handle, .group = absent.group, .blocks = {}};
  for (std::size_t i = 0; i < below.size(); ++i) {
    if (below[i] != 0) {
      wanted.blocks.push_back(absent.blocks[i]);
    } else {
      misses_[to].emplace_back(absent.blocks[i].first, block_answer::missing);
    }
  }
  if (!wanted.blocks.empty()) bring_up(to, of, std::move(wanted));
}

void guest::bring_up(peer::link_id to, hosted& of, peer::block_request wanted) {
  std::vector<submission> entries;
  entries.reserve(wanted.blocks.size());
  for (const auto& [token, key] : wanted.blocks)
    entries.push_back(entry_of(operation::prefetch, wanted.group, 0, key.view()));
  close_request(entries);
  memory::prefetch_terms terms;
  terms.policy = prefetch_policy::wait_complete;
  terms.prefill_rate = 0;  // who asks has decided already that it is worth it
  terms.threshold_tokens = 0;
  terms.pack(entries.back());
  count(pool_.counters.brought_up, wanted.blocks.size());
  room_.run(of.session->number, std::move(entries), true,
            [this, to, wanted = std::move(wanted)](const std::vector<completion>&) {
              if (hosted* const still = find(to, wanted.handle))
                lend(to, *still, {wanted, false, false, pool_.now() + fetch_limit});
            });
}

void guest::find_slabs(hosted& of, std::vector<std::uint32_t> missing, std::function<void()> then) {
  std::ranges::sort(missing);
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::erase_if(missing, [&](std::uint32_t each) { return of.slabs.contains(each); });
  if (missing.empty()) return then();
  room_.find_slabs(of.session->instance, std::move(missing),
                   [this, handle = of.handle, then = std::move(then)](const std::vector<memory::slab_place>& found) {
                     if (const auto still = instances_.find(handle); still != instances_.end()) {
                       for (const memory::slab_place& each : found)
                         still->second.slabs.insert_or_assign(each.index, each);
                     }
                     then();
                   });
}

void guest::send_loans(hosted& of, std::vector<place> which) {
  std::vector<std::uint32_t> slabs;
  slabs.reserve(which.size());
  for (const place& each : which) slabs.push_back(loans_.at(each).pin.block.slab());
  find_slabs(of, std::move(slabs), [this, handle = of.handle, which = std::move(which)] {
    const auto still = instances_.find(handle);
    for (const place& each : which) {
      const auto found = loans_.find(each);
      if (found != loans_.end() && still != instances_.end()) send_loan(still->second, each, found->second);
    }
  });
}

void guest::send_loan(hosted& of, const place& to, loan& what) {
  const auto slab = of.slabs.find(what.pin.block.slab());
  const std::uint32_t number = what.pin.block.block();
  if (slab == of.slabs.end() || number >= slab->second.count || slab->second.stride != what.bytes) {
    misses_[to.first].emplace_back(to.second, block_answer::missing);
    return end_loan(loans_.find(to));
  }
  const std::span<const std::byte> memory(slab->second.memory + what.bytes * number, what.bytes);
  // What is kept is the sum of the block's bytes, what is sent its whole stride.
  const auto kept = is_padded(of.spec.groups[what.group]) ? std::nullopt : slab->second.records[number].checksum();
  peer::piece_header head;
  head.token = to.second;
  head.what = static_cast<std::uint16_t>(piece_kind::asked);
  head.handle = of.handle;
  head.checksum = bind_checksum(kept ? *kept : checksum_of(memory), of.identity, what.group, what.full);
  what.is_given = true;
  count(pool_.counters.lent);
  count(pool_.counters.lent_bytes, what.bytes);
  pool_.send_block(to.first, head, memory);
}

void guest::sent(peer::link_id to, std::uint64_t token, bool is_sent) {
  const auto found = loans_.find({to, token});
  if (found == loans_.end()) return;
  const pool_member* const other = pool_.member_on(to);
  const auto of = instances_.find(found->second.handle);
  if (is_sent && other != nullptr && of != instances_.end()) {
    const loan& lent = found->second;
    borrowers_.note(of->second.identity, reduce_key(lent.full.view(), lent.group), other->name);
  }
  end_loan(found);
  if (!is_sent && pool_.member_on(to) != nullptr) misses_[to].emplace_back(token, block_answer::missing);
}

void guest::end_loan(std::map<place, loan>::iterator which) {
  const auto of = instances_.find(which->second.handle);
  if (of != instances_.end()) of->second.session->lookup.unpin(std::span(&which->second.pin, 1));
  if (const auto used = usage_.find(which->first.first); used != usage_.end())
    used->second.loans -= which->second.bytes;
  lent_ -= which->second.bytes;
  loans_.erase(which);
}

/// To the tier's policies a read by another node is a read.
void guest::touch(hosted& of, std::uint32_t group, std::span<const place> lent) {
  if (lent.empty()) return;
  std::vector<submission> entries;
  for (std::size_t first = 0; first < lent.size(); first += memory::touch_runs::capacity) {
    byte_writer runs;
    for (const place& each : lent.subspan(first, std::min(memory::touch_runs::capacity, lent.size() - first)))
      runs.put(memory::touch_runs::make(loans_.at(each).pin.block, 1));
    entries.push_back(entry_of(operation::touch, group, 0, runs.bytes()));
  }
  close_request(entries);
  room_.run(of.session->number, std::move(entries), false, [](const std::vector<completion>&) {});
}

// ---------------------------------------------------------------------------------------------- writes

void guest::offer(peer::link_id from, std::uint64_t request, std::span<const std::byte> body) {
  auto asked = peer::decode_block_request(body);
  if (!asked) return misbehaves(from, asked.error().message());
  if (!std::ranges::all_of(asked->blocks, [](const auto& each) { return is_offer(each.first); }))
    return misbehaves(from, "names blocks that it offers as blocks that are asked for");
  peer::block_answers answers;
  const auto turn_down = [&](block_answer why) {
    for (const auto& [token, key] : asked->blocks) answers.emplace_back(token, why);
    pool_.send(from, frame_type::accept, request, peer::encode(answers));
  };
  hosted* const of = find(from, asked->handle);
  if (of == nullptr || !of->session || asked->group >= of->spec.groups.size() || asked->blocks.empty())
    return turn_down(block_answer::full);
  if (const auto* const asker = pool_.member_on(from); asker == nullptr || pool_.departures.has(asker->name))
    return turn_down(block_answer::full);                                    // it has not cleared its blocks yet
  if (asked->cleared && *asked->cleared < pool_.told_cleared(of->identity))  // stored before the clear, perhaps
    return turn_down(block_answer::outdated);
  const std::vector<std::byte> keys = flat(*asked);
  std::vector<std::uint8_t> here(asked->blocks.size());
  of->session->lookup.find_each(batch_of(keys, asked->blocks.front().second.size), asked->group, here);
  const std::uint64_t stride = of->spec.groups[asked->group].stride();
  std::uint64_t coming = usage_[from].deliveries;
  std::vector<std::pair<std::uint64_t, full_key>> wanted;
  std::set<std::uint64_t> named;  // a token that comes twice would lose one of its places
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto& [token, key] = asked->blocks[i];
    const bool has_room = coming == 0 || coming + stride <= 2 * options_.window;
    const bool is_removed = pool_.removals.has(of->identity, reduce_key(key.view(), asked->group), pool_.now());
    if (here[i] != 0) {
      answers.emplace_back(token, block_answer::have);
    } else if (is_removed || !has_room || deliveries_.contains({from, token}) || !named.insert(token).second) {
      answers.emplace_back(token, block_answer::full);
    } else {
      coming += stride;
      wanted.emplace_back(token, key);
    }
  }
  asked->blocks = std::move(wanted);
  if (asked->blocks.empty()) return pool_.send(from, frame_type::accept, request, peer::encode(answers));
  reserve(from, request, *of, std::move(*asked), std::move(answers));
}

void guest::reserve(peer::link_id from, std::uint64_t request, hosted& of, peer::block_request asked,
                    peer::block_answers answers) {
  const std::uint64_t stride = of.spec.groups[asked.group].stride();
  of.stored_at = pool_.now();
  std::vector<submission> entries;
  for (const auto& [token, key] : asked.blocks) {
    submission& entry = entries.emplace_back(entry_of(operation::reserve, asked.group, 0, key.view()));
    entry.argument = of.spec.groups[asked.group].all_parts();
    usage_[from].deliveries += stride;
    deliveries_[{from, token}] = delivery{.handle = of.handle,
                                          .group = asked.group,
                                          .full = key,
                                          .block = {},
                                          .grant_version = 0,
                                          .until = pool::steady_time::max()};
  }
  close_request(entries);
  room_.run(of.session->number, std::move(entries), false,
            [this, from, request, handle = of.handle, asked = std::move(asked), answers = std::move(answers)](
                const std::vector<completion>& how) { reserved(from, request, handle, asked, answers, how); });
}

void guest::reserved(peer::link_id from, std::uint64_t request, std::uint32_t handle, const peer::block_request& asked,
                     peer::block_answers answers, const std::vector<completion>& how) {
  std::vector<const completion*> by_index(asked.blocks.size());
  for (const completion& each : how) {
    if (each.kind != completion_kind::done && each.index < by_index.size()) by_index[each.index] = &each;
  }
  std::vector<place> coming;
  for (std::size_t i = 0; i < by_index.size(); ++i) {
    const place at{from, asked.blocks[i].first};
    const auto kind = by_index[i] == nullptr ? completion_kind::refused : by_index[i]->kind;
    if (kind != completion_kind::reserved) {
      answers.emplace_back(at.second, kind == completion_kind::present ? block_answer::have : block_answer::full);
      end_delivery(at, std::nullopt);
    } else if (take_reservation(at, handle, asked, i, *by_index[i])) {
      coming.push_back(at);
    } else {
      answers.emplace_back(at.second, block_answer::full);
    }
  }
  if (!coming.empty()) pool_.wake_at(pool_.now() + fill_limit);
  place_deliveries(handle, coming, [this, from, request, coming, answers]() mutable {
    for (const place& each : coming) {
      const auto found = deliveries_.find(each);
      const bool is_placed = found != deliveries_.end() && !found->second.memory.empty();
      answers.emplace_back(each.second, is_placed ? block_answer::send : block_answer::full);
      if (!is_placed) end_delivery(each, std::nullopt);
    }
    pool_.send(from, frame_type::accept, request, peer::encode(answers));
  });
}

/// False: the link closed meanwhile, or the key was removed, and the block goes back.
bool guest::take_reservation(const place& at, std::uint32_t handle, const peer::block_request& asked, std::size_t which,
                             const completion& how) {
  const auto found = deliveries_.find(at);
  const auto block = memory::block_ref::from_bits(how.block);
  if (found == deliveries_.end()) {
    ended_.push_back({at,
                      {.handle = handle,
                       .group = asked.group,
                       .full = asked.blocks[which].second,
                       .block = block,
                       .grant_version = how.grant_version}});
    return false;
  }
  found->second.block = block;
  found->second.grant_version = how.grant_version;
  found->second.until = pool_.now() + fill_limit;
  return true;
}

std::uint64_t guest::stride_of(std::uint32_t handle, std::uint32_t group) const {
  const auto found = instances_.find(handle);
  return found == instances_.end() ? 0 : found->second.spec.groups[group].stride();
}

void guest::place_deliveries(std::uint32_t handle, const std::vector<place>& which, std::function<void()> then) {
  const auto of = instances_.find(handle);
  if (of == instances_.end()) return;  // its links have closed
  std::vector<std::uint32_t> slabs;
  slabs.reserve(which.size());
  for (const place& each : which) slabs.push_back(deliveries_.at(each).block.slab());
  find_slabs(of->second, std::move(slabs), [this, handle, which, then = std::move(then)] {
    const auto still = instances_.find(handle);
    for (const place& each : which) {
      const auto found = deliveries_.find(each);
      if (found == deliveries_.end() || still == instances_.end()) continue;
      delivery& one = found->second;
      const auto slab = still->second.slabs.find(one.block.slab());
      if (slab == still->second.slabs.end() || one.block.block() >= slab->second.count) continue;
      one.memory = {slab->second.memory + slab->second.stride * one.block.block(), slab->second.stride};
    }
    then();
  });
}

peer::landing guest::expects(peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
  const auto found = deliveries_.find({from, head.token});
  if (found == deliveries_.end()) return {};
  delivery& one = found->second;
  if (one.memory.empty() || head.total != one.memory.size() || head.offset != one.landed) return {};
  if (!one.sum) one.sum = std::make_shared<running_checksum>();
  return {one.memory.subspan(head.offset, bytes), one.sum.get()};
}

void guest::landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
  const auto found = deliveries_.find({from, head.token});
  if (found == deliveries_.end()) return;
  delivery& one = found->second;
  one.landed += piece.size();
  if (one.memory.empty() || one.landed < one.memory.size()) return;
  const auto of = instances_.find(one.handle);
  if (of == instances_.end()) return;
  const std::uint64_t hash = one.sum && one.sum->bytes() == one.landed ? one.sum->value() : checksum_of(one.memory);
  if (head.checksum == bind_checksum(hash, of->second.identity, one.group, one.full)) {
    of->second.stored_at = pool_.now();
    return end_delivery({from, head.token}, hash);
  }
  count(pool_.counters.wrong);
  answer_stored(from, head.token, block_answer::wrong);
  end_delivery({from, head.token}, std::nullopt);
}

void guest::answer_stored(peer::link_id to, std::uint64_t token, block_answer how) {
  pool_.send(to, frame_type::stored, 0, peer::encode(peer::block_answers{{token, how}}));
}

/// With a hash: the block is whole. Without: it will not come, and its place goes back.
void guest::end_delivery(const place& which, std::optional<std::uint64_t> hash) {
  const auto found = deliveries_.find(which);
  if (found == deliveries_.end()) return;
  if (const auto used = usage_.find(which.first); used != usage_.end())
    used->second.deliveries -= stride_of(found->second.handle, found->second.group);
  if (found->second.until != pool::steady_time::max()) ended_.push_back({which, found->second, hash});
  deliveries_.erase(found);
}

void guest::advance(std::chrono::steady_clock::time_point now) {
  std::vector<place> late;
  auto next = end_overdue_fetches(now);
  for (const auto& [at, each] : deliveries_) {
    if (each.until <= now)
      late.push_back(at);
    else
      next = std::min(next, each.until);
  }
  for (const place& each : late) {
    answer_stored(each.first, each.second, block_answer::lost);
    end_delivery(each, std::nullopt);
  }
  if (next != pool::steady_time::max()) pool_.wake_at(next);
}

void guest::flush() {
  serve_queues();
  for (auto& [link, answers] : std::exchange(misses_, {})) {
    if (!answers.empty()) pool_.send(link, frame_type::fetched, 0, peer::encode(answers));
  }
  std::map<std::uint32_t, std::vector<ended_delivery>> by_instance;
  for (ended_delivery& each : std::exchange(ended_, {})) by_instance[each.what.handle].push_back(std::move(each));
  for (auto& [handle, all] : by_instance) store(handle, std::move(all));
  for (auto each = instances_.begin(); each != instances_.end();) {
    const hosted& of = each->second;
    const bool is_over =
        of.users.empty() && of.session && of.clears == 0 && of.removals == 0 &&
        std::ranges::none_of(loans_, [&](const auto& one) { return one.second.handle == of.handle; }) &&
        std::ranges::none_of(deliveries_, [&](const auto& one) { return one.second.handle == of.handle; });
    if (is_over) leave(of);
    each = is_over ? instances_.erase(each) : std::next(each);
  }
}

/// Stores the whole ones, gives the others back.
void guest::store(std::uint32_t handle, std::vector<ended_delivery> all) {
  const auto of = instances_.find(handle);
  if (of == instances_.end() || !of->second.session) return;  // its session is over, and its reservations with it
  std::vector<submission> entries;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const ended_delivery& each = all[i];
    submission& entry =
        entries.emplace_back(entry_of(each.hash ? operation::finish : operation::release, each.what.group, i));
    entry.block = each.what.block.bits;
    entry.grant_version = each.what.grant_version;
    entry.argument = each.hash ? of->second.spec.groups[each.what.group].all_parts() : 0;
    const bool is_summed = each.hash && !is_padded(of->second.spec.groups[each.what.group]);
    entry.detail = is_summed ? *each.hash : 0;
    entry.flags = static_cast<std::uint8_t>(submission::flag_last | (is_summed ? submission::flag_checksum : 0));
  }
  room_.run(of->second.session->number, std::move(entries), false,
            [this, all = std::move(all)](const std::vector<completion>& how) {
              std::map<peer::link_id, peer::block_answers> answers;
              for (const completion& each : how) {
                if (each.kind != completion_kind::done || each.request >= all.size()) continue;
                const ended_delivery& of_it = all[each.request];
                if (!of_it.hash) continue;
                const bool is_stored = each.value == 1;
                count(is_stored ? pool_.counters.hosted : pool_.counters.not_hosted);
                answers[of_it.from.first].emplace_back(of_it.from.second,
                                                       is_stored ? block_answer::stored : block_answer::lost);
              }
              for (const auto& [link, of_link] : answers)
                pool_.send(link, frame_type::stored, 0, peer::encode(of_link));
            });
}

// ---------------------------------------------------------------------------------------------- removal

void guest::forget(peer::link_id from, std::uint64_t request, std::span<const std::byte> body) {
  const auto asked = peer::decode_forget_request(body);
  if (!asked) return misbehaves(from, asked.error().message());
  const auto answer = [this, from, request, identity = asked->identity, keys = asked->keys](std::uint64_t removed,
                                                                                            std::string why) {
    pool_.removals.end(identity, keys, pool_.now() + options_.removal_lag, pool_.now());
    pool_.send(from, frame_type::forgot, request, peer::encode(peer::forget_answer{removed, std::move(why)}));
  };
  hosted* of = find_identity(asked->identity);
  if (!may_forget(from, of, *asked))  // nothing of it was ever shared with that node
    return pool_.send(from, frame_type::forgot, request, peer::encode(peer::forget_answer{}));
  pool_.removals.begin(asked->identity, asked->keys, pool_.now());
  if (of == nullptr) of = host(asked->identity, asked->spec);
  if (of == nullptr) return answer(0, "this node does not know the instance yet");
  run_open(
      *of, [this, asked = *asked, answer](hosted& open) { forget_in(open, asked, answer); },
      [answer](const std::string& reason) { answer(0, reason); });
}

void guest::learn_write_offs(peer::link_id sender, std::uint64_t request, std::span<const std::byte> body) {
  const auto notice = peer::decode_write_off_notice(body);
  if (!notice) return misbehaves(sender, notice.error().message());
  const std::string& self = pool_.members().self;
  const auto own = std::ranges::find(notice->nodes, self, &std::pair<std::string, std::uint64_t>::first);
  for (const std::uint64_t number : notice->closed) {
    // Of its own write-off, this node believes its own book alone.
    if (own == notice->nodes.end() || own->second != number) pool_.learn_return(number);
  }
  for (const auto& [name, number] : notice->nodes) {
    if (name == self) {
      clear_node(sender, request, number);
    } else {
      pool_.learn_write_off(name, number);
    }
  }
}

/// This node is the one that was not to come back. Removals were done without it, so that each of its blocks may be one
/// that was removed.
void guest::clear_node(peer::link_id sender, std::uint64_t request, std::uint64_t number) {
  if (pool_.departures.is_closed(number))
    return pool_.send(sender, frame_type::forgot, request, peer::encode(peer::forget_answer{}));
  auto& waiting = own_clears_[number];
  waiting.emplace_back(sender, request);
  if (waiting.size() > 1) return;
  for (const auto& [handle, instance] : instances_) revoke(instance, {});
  room_.clear_node([this, number](const result<std::uint64_t>& cleared) { end_clear_node(number, cleared); });
}

void guest::end_clear_node(std::uint64_t number, const result<std::uint64_t>& cleared) {
  if (cleared) {
    pool_.departures.close(pool_.members().self, number);
    count(pool_.counters.own_clears);
  }
  const peer::forget_answer answer{cleared.value_or(0), cleared ? std::string() : cleared.error().describe()};
  const auto waiting = own_clears_.extract(number);
  for (const auto& [link, request] : waiting.mapped())
    pool_.send(link, frame_type::forgot, request, peer::encode(answer));
}

/// A node that has bound the instance has shown its right to the group; another one shows it with the request.
bool guest::may_forget(peer::link_id node, const hosted* instance, const peer::forget_request& request) const {
  if (instance != nullptr && instance->users.contains(node)) return true;
  if (instance != nullptr) return right_refusal(node, instance->spec, request.right).empty();
  byte_reader reader(request.spec);
  const auto spec = decode_instance_spec(reader);
  return !spec || right_refusal(node, *spec, request.right).empty();  // without a spec nothing can be opened
}

void guest::forget_in(hosted& instance, const peer::forget_request& request,
                      std::function<void(std::uint64_t, std::string)> answer) {
  if (request.cleared == 0) return remove(instance, request.keys, std::move(answer));
  if (request.cleared == pool_.cleared(request.identity) && instance.clears == 0 && !instance.must_clear)
    return answer(0, {});  // a bind or a fetch brought it
  const std::uint64_t known = pool_.told_cleared(request.identity), number = pool::credible_clear(request.cleared);
  // A node whose clock is behind clears later all the same: nodes that are away shall learn of that one, too.
  pool_.note_cleared(request.identity, number < known ? known + 1 : number);
  clear(instance, [this, answer = std::move(answer), identity = request.identity](std::uint64_t removed,
                                                                                  const std::string& reason) {
    if (!reason.empty()) pool_.forget_cleared(identity);
    answer(removed, reason);
  });
}

/// Empty: all keys. What is on its way here, or came and is not stored yet, goes back: a removal looks for blocks that
/// are stored.
void guest::revoke(const hosted& instance, std::span<const block_key> keys) {
  std::vector<block_key> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted);
  const auto is_meant = [&](const delivery& block) {
    return block.handle == instance.handle &&
           (sorted.empty() || std::ranges::binary_search(sorted, reduce_key(block.full.view(), block.group)));
  };
  std::vector<place> coming;
  for (const auto& [at, block] : deliveries_) {
    if (is_meant(block)) coming.push_back(at);
  }
  for (const place& block : coming) {
    answer_stored(block.first, block.second, block_answer::lost);
    end_delivery(block, std::nullopt);
  }
  for (ended_delivery& block : ended_) {
    if (!block.hash || !is_meant(block.what)) continue;
    block.hash.reset();
    answer_stored(block.from.first, block.from.second, block_answer::lost);
  }
}

void guest::remove(hosted& of, const std::vector<block_key>& keys,
                   std::function<void(std::uint64_t, std::string)> then) {
  std::vector<submission> entries;
  for (const block_key& each : keys) {
    submission& entry = entries.emplace_back(entry_of(operation::remove, 0, 0, std::as_bytes(std::span(&each, 1))));
    entry.flags |= submission::flag_reduced;
  }
  if (entries.empty()) return then(0, {});
  revoke(of, keys);
  close_request(entries);
  ++of.removals;
  room_.run(of.session->number, std::move(entries), false,
            [this, handle = of.handle, then = std::move(then)](const std::vector<completion>& completions) {
              --instances_.at(handle).removals;  // kept while keys of it are removed
              tell_removed(completions, then);
            });
}

void guest::clear(hosted& of, std::function<void(std::uint64_t, std::string)> then) {
  std::vector<submission> entries{entry_of(operation::clear, 0, 0)};
  close_request(entries);
  revoke(of, {});
  ++of.clears;
  of.must_clear = false;
  room_.run(of.session->number, std::move(entries), false,
            [this, handle = of.handle, then = std::move(then)](const std::vector<completion>& how) {
              hosted& still = instances_.at(handle);  // kept while it is cleared
              const bool is_last = --still.clears == 0;
              tell_removed(how, [&](std::uint64_t removed, const std::string& why) {
                if (is_last && why.empty()) pool_.note_carried_out(still.identity);
                then(removed, why);
              });
              if (is_last) answer_binds(still);
            });
}

void guest::tell_removed(const std::vector<completion>& how,
                         const std::function<void(std::uint64_t, std::string)>& then) {
  const auto done = std::ranges::find(how, completion_kind::done, &completion::kind);
  if (done == how.end()) return then(0, "the block tier did not answer");
  const auto code = static_cast<error_code>(done->code);
  then(done->value, code == error_code::ok ? std::string() : std::string(to_string(code)));
}

}  // namespace cenote::cluster
