#include "tests/support/local_owner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "memory/fence.hpp"
#include "memory/group_terms.hpp"
#include "transport/local/socket.hpp"

namespace cenote::testing {

namespace {

using memory::completion;
using memory::completion_kind;
using memory::grant_slot;
using memory::operation;
using memory::submission;

template <class T>
T must(result<T> outcome) {
  if (!outcome) throw std::runtime_error(outcome.error().describe());
  return std::move(*outcome);
}

memory::slab_mapping new_slab(std::uint64_t block_bytes, device* home) {
  if (home != nullptr) {
    auto made = must(home->make(block_bytes));
    return {std::move(made.mapping), made.bytes, std::move(made.descriptor)};
  }
  auto made = must(memory::segment::create("test-slab", (block_bytes + 4095) / 4096 * 4096 + memory::page_bytes));
  auto& trailer = *reinterpret_cast<memory::segment_header*>(made.data() + made.size() - memory::page_bytes);
  memory::write_header(trailer, memory::segment_kind::slab, made.size());
  return made;
}

unique_fd new_bell() {
  return unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void ring(int fd) {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(fd, &one, sizeof one));
}

std::vector<std::byte> key_bytes(const submission& entry) {
  return {entry.key, entry.key + entry.key_size};
}

}  // namespace

std::vector<std::byte> key_of(std::uint64_t number) {
  std::vector<std::byte> key(32);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t word = (number + 1) * 0x9e3779b97f4a7c15ULL + i;
    std::memcpy(key.data() + i * 8, &word, 8);
  }
  return key;
}

std::vector<std::byte> keys_of(std::uint64_t first, std::size_t count) {
  std::vector<std::byte> keys;
  for (std::size_t i = 0; i < count; ++i) {
    const auto key = key_of(first + i);
    keys.insert(keys.end(), key.begin(), key.end());
  }
  return keys;
}

// ---------------------------------------------------------------------------------------------- owner

local_owner::local_owner(std::uint32_t blocks, std::uint64_t stride, std::uint32_t pin_slots, device* home)
    : blocks_(blocks),
      stride_(stride),
      slab_(new_slab(blocks * stride, home)),
      session_segment_(must(memory::segment::create("test-session", memory::session_memory::segment_bytes(pin_slots)))),
      index_(must(
          memory::index_writer::create(must(memory::shared_file::create("test-index", memory::index_segment_bytes))))),
      versions_(must(memory::version_table::create(
          must(memory::shared_file::create("test-versions", memory::version_table::segment_bytes))))),
      session_(memory::session_memory::create(session_segment_, 1, pin_slots)),
      keys_(blocks),
      groups_(blocks) {
  if (!versions_.make_room(slab_index, 5, blocks)) throw std::runtime_error("no room in the version table");
  memory::slab_entry& entry = *versions_.slab(slab_index);
  entry.first_version = 5;  // not 0: places and version_indices must not be mixed up
  entry.count = blocks;
  entry.stride = stride;
  entry.state.store(static_cast<std::uint32_t>(memory::slab_state::live), std::memory_order_release);
  session_.header().worker_epoch.store(1, std::memory_order_release);
  session_.header().asks_tiers.store(1, std::memory_order_relaxed);
}

void local_owner::publish(std::uint32_t block, std::span<const std::byte> key, std::uint32_t group) {
  const std::uint32_t version_index = versions_.slab(slab_index)->first_version + block;
  const std::uint64_t version = (versions_.version(version_index) | 1) + 1;
  keys_[block] = full_key(key);
  groups_[block] = group;
  versions_.set_key(version_index, keys_[block]);
  versions_.set_version(version_index, version);
  static_cast<void>(index_.insert(reduce_key(key, group), memory::index_value::make(ref(block), version)));
}

std::vector<bool> local_owner::condemn(std::span<const std::uint32_t> blocks) {
  const std::uint32_t first = versions_.slab(slab_index)->first_version;
  std::vector<memory::block_ref> refs;
  for (const std::uint32_t block : blocks) {
    versions_.set_version(first + block, versions_.version(first + block) | 1);
    refs.push_back(ref(block));
  }
  memory::full_fence();
  memory::pin_scan scan(refs);
  scan.add(session_);
  std::vector<bool> blank;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blank.push_back(!scan.pinned(i));
    if (scan.pinned(i)) {
      const full_key key = keys_[blocks[i]];
      const std::uint64_t version = versions_.version(first + blocks[i]) + 1;
      versions_.set_version(first + blocks[i], version);
      static_cast<void>(index_.insert(reduce_key(key.view(), groups_[blocks[i]]),
                                      memory::index_value::make(ref(blocks[i]), version)));
    } else {
      index_.erase(reduce_key(keys_[blocks[i]].view(), groups_[blocks[i]]));
      keys_[blocks[i]] = {};
    }
  }
  return blank;
}

// ---------------------------------------------------------------------------------------------- node

local_node::local_node(local_owner& owner, std::uint64_t all_parts)
    : owner_(&owner), all_parts_(all_parts), submit_bell_(new_bell()), complete_bell_(new_bell()) {
  for (std::uint32_t block = owner.blocks(); block-- > 0;) blank_.push_back(block);
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("socketpair");
  client_socket_ = unique_fd(pair[0]);
  socket_ = unique_fd(pair[1]);
  start();
}

local_node::~local_node() {
  stop();
}

unique_fd local_node::submit_bell() const {
  return must(submit_bell_.duplicate());
}
unique_fd local_node::complete_bell() const {
  return must(complete_bell_.duplicate());
}

void local_node::stop() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  ring(submit_bell_.get());
  thread_.join();
  socket_.reset();
}

void local_node::start() {
  stop_.store(false);
  rings_ = memory::worker_rings(owner_->session());
  thread_ = std::thread([this] { serve(); });
}

void local_node::stand_still(bool halt) {
  still_.store(halt);
  while (halt && thread_.joinable() && !stands_.load()) std::this_thread::yield();
}

void local_node::serve() {
  while (!stop_.load()) {
    stands_.store(still_.load());
    if (stands_.load()) {
      ::poll(nullptr, 0, 1);
      continue;
    }
    const auto waiting = rings_.waiting();
    if (waiting && *waiting > 0) {
      const submission entry = rings_.peek(0);
      run(entry);
      const bool sleeps = rings_.publish();
      rings_.advance(1);
      if (sleeps) ring(complete_bell_.get());
      continue;
    }
    if (!rings_.arm()) continue;
    pollfd entries[2] = {{submit_bell_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    ::poll(entries, 2, 100);
    rings_.disarm();
    std::uint64_t count = 0;
    static_cast<void>(!::read(submit_bell_.get(), &count, sizeof count));
    if ((entries[1].revents & POLLIN) != 0) serve_socket();
  }
}

void local_node::serve_socket() {
  auto got = local::try_receive_frame(socket_.get());
  if (!got || !*got) return;
  const local::frame& asked = **got;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  if (asked.header.type == local::frame_type::slabs) {
    const auto indices = must(local::decode_slab_query(asked.payload));
    const auto fd = must(owner_->slab_segment().fd().duplicate());
    const std::vector<local::slab_descriptor> slabs{{indices.front(), owner_->slab_segment().size()}};
    const int raw = fd.get();
    static_cast<void>(local::send_frame(socket_.get(), local::reply_to(asked.header, local::frame_type::slabs_reply),
                                        local::encode_slabs(slabs), std::span(&raw, 1), soon));
  } else {
    static_cast<void>(
        local::send_frame(socket_.get(), local::reply_to(asked.header, local::frame_type::done), {}, {}, soon));
  }
}

void local_node::refuse(const submission& entry, error_code code) {
  if (refusal_ != 0) return;
  refusal_ = static_cast<std::uint16_t>(code);
  refusal_index_ = entry.index;
}

void local_node::run(const submission& entry) {
  switch (entry.op) {
    case operation::grant: grant(entry); break;
    case operation::commit: commit(entry); break;
    case operation::reserve: reserve(entry); break;
    case operation::finish: finish(entry); break;
    case operation::release: give_back(entry); break;
    case operation::remove: forget(entry); break;
    case operation::touch: touched_.fetch_add(1); return;
    case operation::asked: return;
    case operation::locate:
      if ((entry.flags & submission::flag_last) != 0) locate(entry);
      return;
    case operation::prefetch:
    case operation::stop_prefetch:
    case operation::end_prefetch:
      if ((entry.flags & submission::flag_last) != 0) {
        const std::lock_guard lock(words_mutex_);
        words_.push_back(entry);
      }
      break;
    case operation::join:
    case operation::agree:
    case operation::leave: return run_group(entry);
    case operation::publish: publish(entry); break;
    case operation::clear:
    case operation::keep:
    case operation::check:
    case operation::follow:
    case operation::barrier: break;
  }
  if ((entry.flags & submission::flag_last) == 0) return;
  completion answer;
  answer.request = entry.request;
  answer.kind = completion_kind::done;
  answer.value = std::exchange(effects_, 0);
  answer.code = std::exchange(refusal_, std::uint16_t{0});
  answer.index = std::exchange(refusal_index_, 0U);
  if (entry.op == operation::follow) answer.block = follows_end_.load() ? 1 : 0;
  if (!silent_.load()) rings_.push(answer);
}

/// Of one request.
void local_node::publish(const submission& entry) {
  if (entry.index == 0) {
    const std::lock_guard lock(words_mutex_);
    publications_.push_back(entry);
    if (forgets_.load()) published_ = 0;
    if (entry.argument != submission::no_place && entry.argument != published_)
      refuse(entry, error_code::invalid_argument);
  } else if (refusal_ == 0) {
    ++published_;
  }
  effects_ = published_;
}

void local_node::run_group(const submission& entry) {
  const std::lock_guard lock(words_mutex_);
  group_words_.push_back(entry);
  if (entry.op == operation::agree && held_questions_.size() < hold_) return held_questions_.push_back(entry);
  answer_group(entry);
  for (; !held_questions_.empty(); held_questions_.pop_back()) answer_group(held_questions_.back());
}

void local_node::answer_group(const submission& entry) {
  if (silent_.load()) return;
  const bool leaves = entry.op == operation::leave;
  if (!leaves)
    memory::refusal_text::pack(group_why_, entry.request, [&](const completion& piece) { rings_.push(piece); });
  rings_.push({.request = entry.request,
               .kind = completion_kind::done,
               .code = static_cast<std::uint16_t>(leaves ? error_code::ok : group_code_),
               .value = entry.argument});
}

/// The last entry of a request; its index says how many there are.
void local_node::locate(const submission& entry) {
  const std::uint64_t keys = entry.index + std::uint64_t{1};
  located_.fetch_add(keys);
  completion answer;
  answer.request = entry.request;
  answer.kind = completion_kind::done;
  answer.value = std::min(keys, reach_.load());
  reach_.fetch_sub(answer.value);
  if (!silent_.load()) rings_.push(answer);
}

bool local_node::take_blank(std::uint32_t& block) {
  if (blank_.empty()) return false;
  block = blank_.back();
  blank_.pop_back();
  return true;
}

void local_node::grant(const submission& entry) {
  std::uint32_t block = 0;
  for (std::size_t i = 0; i < memory::session_memory::grants && effects_ < entry.argument; ++i) {
    grant_slot& slot = owner_->session().grant(i);
    if (slot.word.load() != grant_slot::empty) continue;
    if (!take_blank(block)) break;
    slot.block.store(local_owner::ref(block).bits);
    slot.word.store(grant_slot::make(++grant_version_, entry.group, grant_slot::granted));
    ++effects_;
  }
  if (effects_ == 0) refuse(entry, error_code::no_space);
}

void local_node::empty_slot(std::uint64_t block) {
  for (std::size_t i = 0; i < memory::session_memory::grants; ++i) {
    grant_slot& slot = owner_->session().grant(i);
    if (slot.block.load() == block && slot.word.load() != 0) slot.word.store(0);
  }
}

void local_node::commit(const submission& entry) {
  const std::uint32_t block = memory::block_ref::from_bits(entry.block).block();
  empty_slot(entry.block);
  if (refuse_.load() > 0) {
    refuse_.fetch_sub(1);
    blank_.insert(blank_.begin(), block);
    return refuse(entry, error_code::revoked);
  }
  const auto key = key_bytes(entry);
  if (present_.contains(key)) {
    blank_.push_back(block);
    return;
  }
  owner_->publish(block, key, entry.group);
  present_[key] = block;
  ++effects_;
}

void local_node::reserve(const submission& entry) {
  completion answer;
  answer.request = entry.request;
  answer.index = entry.index;
  const auto key = key_bytes(entry);
  std::uint32_t block = 0;
  if (present_.contains(key)) {
    answer.kind = completion_kind::present;
  } else if (const auto found = pending_.find(key); found != pending_.end()) {
    const bool taken = (found->second.reserved & entry.argument) != 0;
    answer.kind = taken ? completion_kind::pending : completion_kind::reserved;
    if (!taken) found->second.reserved |= entry.argument;
    answer.block = taken ? 0 : found->second.block;
    answer.grant_version = taken ? 0 : found->second.version;
  } else if (!take_blank(block)) {
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::no_space);
    refuse(entry, error_code::no_space);
  } else {
    pending_[key] = {local_owner::ref(block).bits, ++grant_version_, entry.argument, 0, entry.group};
    answer.kind = completion_kind::reserved;
    answer.block = local_owner::ref(block).bits;
    answer.grant_version = grant_version_;
  }
  if (answer.kind == completion_kind::reserved) answer.value = entry.argument;
  if (!silent_.load()) rings_.push(answer);
  if (!repeat_.load()) return;
  answer.request = ~std::uint32_t{0};
  rings_.push(answer);
}

void local_node::finish(const submission& entry) {
  const auto found = std::ranges::find_if(pending_, [&](const auto& each) {
    return each.second.block == entry.block && each.second.version == entry.grant_version;
  });
  if (found == pending_.end()) return refuse(entry, error_code::not_reserved);
  found->second.written |= entry.argument;
  if (found->second.written != all_parts_) return;
  const std::uint32_t block = memory::block_ref::from_bits(entry.block).block();
  owner_->publish(block, found->first, found->second.group);
  present_[found->first] = block;
  pending_.erase(found);
  ++effects_;
}

void local_node::give_back(const submission& entry) {
  released_.fetch_add(1);
  released_parts_.store(entry.argument);
  ++effects_;
  empty_slot(entry.block);
  std::erase_if(pending_, [&](const auto& each) { return each.second.block == entry.block; });
  blank_.push_back(memory::block_ref::from_bits(entry.block).block());
}

void local_node::forget(const submission& entry) {
  const auto found = present_.find(key_bytes(entry));
  if (found == present_.end()) return;
  const std::uint32_t block = found->second;
  if (owner_->condemn(std::span(&block, 1)).front()) {
    blank_.push_back(block);
    present_.erase(found);
    ++effects_;
  }
}

}  // namespace cenote::testing
