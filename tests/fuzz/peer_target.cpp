// Frames between nodes, their bodies, greetings and proofs.
#include <array>

#include "tests/fuzz/target.hpp"
#include "transport/peer/agreement_messages.hpp"
#include "transport/peer/block_messages.hpp"
#include "transport/peer/frame.hpp"
#include "transport/peer/handover_messages.hpp"
#include "transport/peer/handshake.hpp"
#include "transport/peer/messages.hpp"

namespace {

using namespace cenote;
using namespace cenote::peer;
using fuzz::bytes_view;

void decode_bytes(bytes_view input) {
  static_cast<void>(decode_frame(input));
}

/// A frame whose check is right.
void decode_body(bytes_view input) {
  const auto sent = encode_frame(frame_type::hello, 1, {}, input);
  const auto frame = decode_frame(sent);
  if (frame && frame->body.size() != input.size()) std::abort();
}

/// Proofs of both sides over greetings of any form.
void prove_greetings(bytes_view input) {
  const auto half = input.size() / 2;
  static_cast<void>(agree(secret({input.begin(), input.end()}), input.first(half), input.subspan(half)));
}

constexpr std::array<fuzz::codec, 29> codecs{decode_bytes,
                                             decode_body,
                                             prove_greetings,
                                             fuzz::decode<decode_hello>,
                                             fuzz::decode<decode_challenge>,
                                             fuzz::decode<decode_welcome>,
                                             fuzz::decode<decode_refuse>,
                                             fuzz::decode<decode_beat>,
                                             fuzz::decode<decode_view>,
                                             fuzz::decode<decode_weigh>,
                                             fuzz::decode<decode_bind_request>,
                                             fuzz::decode<decode_bind_answer>,
                                             fuzz::decode<decode_unbind_request>,
                                             fuzz::decode<decode_locate_request>,
                                             fuzz::decode<decode_locate_answer>,
                                             fuzz::decode<decode_block_request>,
                                             fuzz::decode<decode_block_answers>,
                                             fuzz::decode<decode_elsewhere_answer>,
                                             fuzz::decode<decode_forget_request>,
                                             fuzz::decode<decode_forget_answer>,
                                             fuzz::decode<decode_seek_group>,
                                             fuzz::decode<decode_join_group>,
                                             fuzz::decode<decode_group_formed>,
                                             fuzz::decode<decode_propose_lengths>,
                                             fuzz::decode<decode_group_saying>,
                                             fuzz::decode<decode_group_here>,
                                             fuzz::decode<decode_follow_request>,
                                             fuzz::decode<decode_handed_keys>,
                                             fuzz::decode<decode_write_off_notice>};

void write_seeds() {
  const greeting known{.cluster = "cluster", .name = "node", .version = "1"};
  const auto who = encode(known);
  full_key key;
  key.size = 16;
  fuzz::write_seed(0, encode_frame(frame_type::beat, 7, {}, encode(beat{})));
  fuzz::write_seed(1, who);
  fuzz::write_seed(2, who);
  fuzz::write_seed(3, who);
  fuzz::write_seed(4, encode_challenge({}, who));
  fuzz::write_seed(5, encode(welcome{}));
  fuzz::write_seed(6, encode(refuse{refusal::closing, "closing"}));
  fuzz::write_seed(7, encode(beat{}));
  fuzz::write_seed(8, encode(view{.live = {{.name = "node", .where = {}, .born = {}}}}));
  fuzz::write_seed(9, encode(weigh{}));
  fuzz::write_seed(10, encode(bind_request{}));
  fuzz::write_seed(11, encode(bind_answer{}));
  fuzz::write_seed(12, encode(unbind_request{}));
  fuzz::write_seed(13, encode(locate_request{.keys = {key}}));
  fuzz::write_seed(14, encode(locate_answer{.held = {true, false}}));
  fuzz::write_seed(15, encode(block_request{.blocks = {{1, key}}}));
  fuzz::write_seed(16, encode(block_answers{}));
  fuzz::write_seed(17, encode(elsewhere_answer{}));
  fuzz::write_seed(18, encode(forget_request{}));
  fuzz::write_seed(19, encode(forget_answer{}));
  fuzz::write_seed(20, encode(seek_group{}));
  fuzz::write_seed(21, encode(join_group{}));
  fuzz::write_seed(22, encode(group_formed{}));
  fuzz::write_seed(23, encode(propose_lengths{}));
  fuzz::write_seed(24, encode(decided_lengths{}));
  fuzz::write_seed(24, encode(lost_epoch{}));
  fuzz::write_seed(24, encode(refused_ranks{}));
  fuzz::write_seed(25, encode(group_here{}));
  fuzz::write_seed(26, encode(follow_request{}));
  fuzz::write_seed(27, encode(handed_keys{.keys = {key}}));
  fuzz::write_seed(28, encode(write_off_notice{.nodes = {{"node", 5}}}));
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
