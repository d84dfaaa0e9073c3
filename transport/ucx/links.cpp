#include "transport/ucx/links.hpp"

#include <algorithm>
#include <utility>

#include "transport/ucx/piece.hpp"

namespace cenote::ucx {

namespace {

// Numbers of active messages: frames on the control worker, the others on that of blocks.
constexpr unsigned frame_message = 1;
constexpr unsigned piece_message = 2;
constexpr unsigned ticket_message = 3;

/// None: UCX did not say who sent it, or keeps the bytes at the sender.
ucp_ep_h sender_of(const ucp_am_recv_param_t& how) {
  if ((how.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return nullptr;
  return (how.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 ? how.reply_ep : nullptr;
}

std::span<const std::byte> bytes_at(const void* memory, std::size_t bytes) {
  return {static_cast<const std::byte*>(memory), bytes};
}

}  // namespace

links::links(std::shared_ptr<const library> from, ucp_worker_h control, ucp_worker_h blocks,
             peer::network_events& events, std::function<peer::link_id()> take_number)
    : library_(std::move(from)),
      control_(control),
      blocks_(blocks),
      events_(events),
      take_number_(std::move(take_number)) {
  // UCX 1.13 calls whatever an unset entry of its table happens to hold (ucp_worker_set_am_handler_common), and a node
  // that was told a wrong port says on one worker what is meant for the other. The last number first: the table has no
  // entries beyond it then.
  for (unsigned message = ticket_message + 1; message-- > 0;) {
    for (ucp_worker* const each : {control_, blocks_}) listen_to(each, message, &strange_message_came);
  }
  listen_to(control_, frame_message, &frame_came);
  listen_to(blocks_, piece_message, &pieces_came);
  listen_to(blocks_, ticket_message, &ticket_came);
}

void links::listen_to(ucp_worker_h worker, unsigned message, ucp_am_recv_callback_t heard) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                      UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  params.id = message;
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = heard;
  params.arg = this;
  (void)library_->ucp_worker_set_am_recv_handler(worker, &params);  // fails for numbers out of range only
}

links::link* links::find(peer::link_id which) {
  const auto found = links_.find(which);
  return found == links_.end() ? nullptr : &found->second;
}

links::link* links::find_open(peer::link_id which) {
  link* const found = find(which);
  return found == nullptr || found->why ? nullptr : found;
}

links::link& links::make_link(peer::link_id which, bool is_dialled, const endpoint& other) {
  link& made = links_[which];
  made.id = which;
  made.is_dialled = is_dialled;
  made.other = other;
  return made;
}

std::function<void(error)> links::failure_of(peer::link_id which) {
  return [this, which](error why) { failures_.emplace_back(which, std::move(why)); };
}

void links::dial(peer::link_id which, const endpoint& other, const result<socket_address>& where) {
  link& made = make_link(which, true, other);
  if (!where) {
    made.why = where.error();
    made.closes_until = clock::now();
    return;
  }
  auto opened = channel::connect(library_, control_, where->get(), where->size, failure_of(which));
  if (!opened) {
    made.why = opened.error();
    made.closes_until = clock::now();
    return;
  }
  made.control = std::move(*opened);
  by_control_[made.control->endpoint()] = which;
  made.control->when_connected([this, which](bool is_connected) {
    if (is_connected) say_opened(which);
  });
}

void links::say_opened(peer::link_id which) {
  if (const link* const open = find_open(which)) events_.opened(which, open->is_dialled, open->other);
}

void links::request_came(ucp_conn_request_h asked, void* self) {
  static_cast<links*>(self)->requests_.push_back(asked);
}

void links::block_request_came(ucp_conn_request_h asked, void* self) {
  static_cast<links*>(self)->block_requests_.push_back(asked);
}

bool links::take_requests() {
  const auto for_links = std::exchange(requests_, {});
  const auto for_blocks = std::exchange(block_requests_, {});
  for (ucp_conn_request* const each : for_links) take_request(each);
  for (ucp_conn_request* const each : for_blocks) take_block_request(each);
  return !for_links.empty() || !for_blocks.empty();
}

void links::take_request(ucp_conn_request_h asked) {
  ucp_conn_request_attr_t who{};
  who.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
  const bool is_known = library_->ucp_conn_request_query(asked, &who) == UCS_OK;
  const peer::link_id which = take_number_();
  auto opened = channel::accept(library_, control_, asked, failure_of(which));
  if (!opened) {
    ++odd_.refused_links;
    return;
  }
  link& made = make_link(which, false, is_known ? socket_address::of(who.client_address).where() : endpoint());
  made.control = std::move(*opened);
  by_control_[made.control->endpoint()] = which;
  events_.opened(which, false, made.other);
  if (links_.size() <= most_links) return;
  ++odd_.refused_links;
  close(which, error(error_code::limit_exceeded, "there are " + std::to_string(most_links) + " links already"));
}

void links::take_block_request(ucp_conn_request_h asked) {
  auto opened = channel::accept(library_, blocks_, asked, {});
  if (!opened) {
    ++odd_.refused_links;
    return;
  }
  ucp_ep* const from = (*opened)->endpoint();
  const bool is_welcome = strangers_.size() < most_strangers;
  if (!is_welcome) ++odd_.refused_links;
  strangers_[from] = {std::move(*opened), is_welcome ? clock::now() + stranger_limit : clock::now(), std::nullopt};
}

void links::send(peer::link_id to, std::vector<std::byte> frame) {
  link* const open = find_open(to);
  if (open == nullptr) return;
  if (frame.size() > peer::network::most_frame_bytes) {
    close(to, error(error_code::internal, "a frame of " + std::to_string(frame.size()) + " bytes is too long"));
  } else if (open->control->under_way() >= peer::network::most_waiting_frames ||
             open->control->frame_bytes() + frame.size() > peer::network::most_waiting_bytes) {
    close(to, error(error_code::limit_exceeded,
                    "it takes no frames: " + std::to_string(open->control->under_way()) + " wait"));
  } else {
    open->control->send(frame_message, std::move(frame));
  }
}

void links::join_blocks(peer::link_id which, const result<socket_address>& where, const peer::ticket& proof) {
  link* const open = find_open(which);
  if (open == nullptr || open->blocks) return;
  if (!where) return close(which, where.error().in("the connection for blocks"));
  auto opened = channel::connect(library_, blocks_, where->get(), where->size, failure_of(which));
  if (!opened) return close(which, opened.error().in("the connection for blocks"));
  open->blocks = std::move(*opened);
  by_blocks_[open->blocks->endpoint()] = which;
  open->blocks->send(ticket_message, encode(proof));
  open->joins_until = clock::now() + join_limit;
}

void links::await_blocks(peer::link_id which, const peer::ticket& proof) {
  link* const open = find_open(which);
  if (open == nullptr || open->blocks) return;
  open->awaited = proof;
  match_strangers();
}

/// A ticket may come before this end knows that it waits for it.
void links::match_strangers() {
  for (auto each = strangers_.begin(); each != strangers_.end();) {
    const auto wanted = std::ranges::find_if(links_, [&](const auto& one) {
      return !one.second.why && one.second.awaited && each->second.proof == one.second.awaited;
    });
    if (!each->second.proof || wanted == links_.end() || each->second.from->is_closing()) {
      ++each;
      continue;
    }
    adopt(wanted->second, std::move(each->second.from));
    each = strangers_.erase(each);
  }
}

void links::adopt(link& to, std::unique_ptr<channel> blocks) {
  to.awaited.reset();  // it opens one connection, once
  to.blocks = std::move(blocks);
  to.blocks->on_failure(failure_of(to.id));
  by_blocks_[to.blocks->endpoint()] = to.id;
  to.blocks->send(ticket_message, encode(peer::ticket{}));
  to.carries_blocks = true;
  events_.carries_blocks(to.id);
}

void links::send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory) {
  link* const open = find_open(to);
  if (open == nullptr || !open->carries_blocks) {
    events_.sent(to, head.token, fail(error_code::closed, "the link carries no blocks"));
    return;
  }
  open->waiting.push_back({head, memory});  // tend() sends it together with what comes next
}

void links::feed(link& which) {
  while (!which.waiting.empty() && which.messages < peer::network::most_messages_under_way) send_message(which);
}

/// Fills a message with pieces of the blocks that wait, in their order.
void links::send_message(link& which) {
  std::vector<piece> pieces;
  std::vector<outgoing_list::iterator> blocks;
  channel::parts data;
  std::size_t room = message_bytes;
  while (room > 0 && !which.waiting.empty() && pieces.size() < channel::most_parts) {
    const auto block = which.waiting.begin();
    const auto bytes = block->memory.subspan(block->given, std::min(room, block->memory.size() - block->given));
    pieces.push_back({block->head, bytes});
    pieces.back().head.offset = block->given;
    pieces.back().head.total = block->memory.size();
    blocks.push_back(block);
    data.push_back(bytes);
    room -= bytes.size();
    block->given += bytes.size();
    ++block->pieces;
    if (block->given == block->memory.size()) which.given.splice(which.given.end(), which.waiting, block);
  }
  ++which.messages;
  which.blocks->send(piece_message, encode(pieces), data, [this, id = which.id, blocks](bool is_sent) {
    if (link* const of = find(id)) end_message(*of, blocks, is_sent);  // a link stays until its last message has ended
  });
}

/// Blocks of which UCX was not given all end with their link.
void links::end_message(link& which, std::span<const outgoing_list::iterator> blocks, bool is_sent) {
  --which.messages;
  for (const auto block : blocks) {
    --block->pieces;
    block->has_failed = block->has_failed || !is_sent;
    if (block->pieces == 0 && block->given == block->memory.size())
      end_block(which, which.given, block, !block->has_failed);
  }
}

void links::end_block(link& which, outgoing_list& from, outgoing_list::iterator block, bool is_sent) {
  const std::uint64_t token = block->head.token;
  from.erase(block);
  events_.sent(which.id, token,
               is_sent ? result<void>() : fail(error_code::closed, "the link closed before it was sent"));
}

void links::close(peer::link_id which, const error& why) {
  link* const open = find_open(which);
  if (open == nullptr) return;
  open->why = why;
  open->closes_until = clock::now() + close_limit;
  open->awaited.reset();
  // UCX may give the address of an endpoint that was closed to the next one, before this link has ended.
  if (open->control) by_control_.erase(open->control->endpoint());
  if (open->blocks) by_blocks_.erase(open->blocks->endpoint());
  if (open->control) open->control->close();
  if (open->blocks) open->blocks->close();
}

void links::close_all(const error& why) {
  is_ending_ = true;
  for (auto& [id, each] : links_) close(id, why);
  for (auto& [from, each] : strangers_) each.from->close();
}

void links::refuse_requests(ucp_listener_h for_links, ucp_listener_h for_blocks) {
  for (ucp_conn_request* const each : std::exchange(requests_, {}))
    (void)library_->ucp_listener_reject(for_links, each);
  for (ucp_conn_request* const each : std::exchange(block_requests_, {}))
    (void)library_->ucp_listener_reject(for_blocks, each);
}

bool links::tend(clock::time_point now) {
  bool has_moved = !is_ending_ && take_requests();
  has_moved |= take_failures();
  for (auto& [id, each] : links_) {
    if (each.control) has_moved |= each.control->call_ended();
    if (each.blocks) has_moved |= each.blocks->call_ended();
    if (!each.why) feed(each);
  }
  has_moved |= end_strangers(now);
  end_late_joins(now);
  has_moved |= end_closed();
  return set_aside(now) || has_moved;
}

bool links::take_failures() {
  const auto failed = std::exchange(failures_, {});
  for (const auto& [which, why] : failed) close(which, why);
  return !failed.empty();
}

bool links::end_strangers(clock::time_point now) {
  bool has_moved = false;
  for (auto each = strangers_.begin(); each != strangers_.end();) {
    stranger& one = each->second;
    has_moved |= one.from->call_ended();
    if (now >= one.until) one.from->close();
    const bool is_over = one.from->is_closed();
    each = is_over ? strangers_.erase(each) : std::next(each);
    has_moved |= is_over;
  }
  return has_moved;
}

/// Something between the two nodes loses what goes to the port for blocks, and frames alone are of no use.
void links::end_late_joins(clock::time_point now) {
  for (auto& [id, each] : links_) {
    if (each.why || !each.joins_until || now < *each.joins_until) continue;
    close(id, error(error_code::deadline_exceeded, "the connection for blocks was not answered within " +
                                                       std::to_string(join_limit.count()) + " s: see cluster.ports"));
  }
}

/// What is said here may ask for more, but only by the network's queue: the table stays as it is meanwhile.
bool links::end_closed() {
  std::vector<peer::link_id> gone;
  for (auto& [id, each] : links_) {
    if (each.why && (!each.control || each.control->is_closed()) && (!each.blocks || each.blocks->is_closed()))
      gone.push_back(id);
  }
  for (const peer::link_id id : gone) {
    link& each = links_.at(id);
    if (each.control) each.control->call_ended();
    if (each.blocks) each.blocks->call_ended();
    for (outgoing_list* const list : {&each.given, &each.waiting}) {
      while (!list->empty()) end_block(each, *list, list->begin(), false);
    }
    const error why = *each.why;
    const bool is_reported = !each.closes_until;
    links_.erase(id);
    if (!is_reported) events_.closed(id, why);
  }
  return !gone.empty();
}

/// The other node may be dialled again, though UCX has not let go. Blocks that UCX may still read end when it has.
bool links::set_aside(clock::time_point now) {
  std::vector<peer::link_id> overdue;
  for (const auto& [id, each] : links_) {
    if (each.closes_until && now >= *each.closes_until) overdue.push_back(id);
  }
  for (const peer::link_id id : overdue) {
    link& late = links_.at(id);
    late.closes_until.reset();
    while (!late.waiting.empty() && late.waiting.back().pieces == 0)
      end_block(late, late.waiting, std::prev(late.waiting.end()), false);
    ++odd_.unended_closes;
    events_.closed(id, *late.why);
  }
  return !overdue.empty();
}

bool links::is_saying() const noexcept {
  return std::ranges::any_of(links_, [](const auto& each) {
    return !each.second.why && each.second.control && each.second.control->frame_bytes() != 0;
  });
}

std::optional<links::clock::time_point> links::wake_at() const {
  std::optional<clock::time_point> soonest;
  for (const auto& [from, each] : strangers_) {
    if (!each.from->is_closing() && (!soonest || each.until < *soonest)) soonest = each.until;
  }
  for (const auto& [id, each] : links_) {
    const auto& until = each.why ? each.closes_until : each.joins_until;
    if (until && (!soonest || *until < *soonest)) soonest = until;
  }
  return soonest;
}

void links::hear_frame(ucp_ep_h from, std::span<const std::byte> frame) {
  const auto found = by_control_.find(from);
  if (found == by_control_.end() || find_open(found->second) == nullptr) {
    ++odd_.strange_messages;
  } else if (frame.size() > peer::network::most_frame_bytes) {
    failures_.emplace_back(found->second, error(error_code::malformed,
                                                "a frame of " + std::to_string(frame.size()) + " bytes; at most " +
                                                    std::to_string(peer::network::most_frame_bytes) + " are allowed"));
  } else {
    events_.heard(found->second, frame);
  }
}

void links::hear_pieces(ucp_ep_h from, std::span<const std::byte> header, std::span<const std::byte> data) {
  const auto found = by_blocks_.find(from);
  const auto pieces = decode_pieces(header, data);
  if (pieces.empty() || found == by_blocks_.end() || find_open(found->second) == nullptr) {
    ++odd_.strange_messages;
    return;
  }
  for (const auto& [head, bytes] : pieces) {
    if (bytes.size() > head.total || head.offset > head.total - bytes.size()) {
      failures_.emplace_back(found->second, error(error_code::malformed, "a piece reaches beyond its block's end"));
      return;
    }
    const peer::landing to = events_.expects(found->second, head, bytes.size());
    if (to.place.size() != bytes.size()) continue;
    if (to.sum != nullptr)
      to.sum->copy(to.place.data(), bytes);
    else
      std::ranges::copy(bytes, to.place.begin());
    events_.landed(found->second, head, to.place);
  }
}

void links::hear_ticket(ucp_ep_h from, std::span<const std::byte> message) {
  const auto proof = decode_ticket(message);
  const auto unknown = strangers_.find(from);
  const auto known = by_blocks_.find(from);
  if (proof && unknown != strangers_.end() && !unknown->second.proof) {
    unknown->second.proof = proof;
    match_strangers();
  } else if (link* const joined = known == by_blocks_.end() ? nullptr : find_open(known->second);
             proof && joined != nullptr && joined->is_dialled && !joined->carries_blocks) {
    joined->carries_blocks = true;
    joined->joins_until.reset();
    events_.carries_blocks(joined->id);
  } else {
    ++odd_.strange_messages;
  }
}

ucs_status_t links::frame_came(void* self, const void* /*header*/, std::size_t /*header_bytes*/, void* data,
                               std::size_t bytes, const ucp_am_recv_param_t* how) {
  if (ucp_ep* const from = sender_of(*how)) static_cast<links*>(self)->hear_frame(from, bytes_at(data, bytes));
  return UCS_OK;
}

ucs_status_t links::strange_message_came(void* self, const void* /*header*/, std::size_t /*header_bytes*/,
                                         void* /*data*/, std::size_t /*bytes*/, const ucp_am_recv_param_t* /*how*/) {
  ++static_cast<links*>(self)->odd_.strange_messages;
  return UCS_OK;
}

ucs_status_t links::pieces_came(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* how) {
  if (ucp_ep* const from = sender_of(*how))
    static_cast<links*>(self)->hear_pieces(from, bytes_at(header, header_bytes), bytes_at(data, bytes));
  return UCS_OK;
}

ucs_status_t links::ticket_came(void* self, const void* /*header*/, std::size_t /*header_bytes*/, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* how) {
  if (ucp_ep* const from = sender_of(*how)) static_cast<links*>(self)->hear_ticket(from, bytes_at(data, bytes));
  return UCS_OK;
}

}  // namespace cenote::ucx
