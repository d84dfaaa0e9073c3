#include "device/paged_layout.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/device/engine_tensors.hpp"

namespace cenote::paged_layout_test {

namespace {

using testing::engine_tensors;

const kv_shape small{.layers = 2, .pages = 4, .page_tokens = 16, .heads = 8, .head_items = 64, .item_bytes = 2};

engine_tensors tensors(kv_layout kind, kv_shape shape = small) {
  std::mt19937_64 random(1);
  return {kind, shape, false, random};
}

/// What is said of tensors that are not as declared.
std::string refusal(kv_layout kind, const kv_shape& shape, const std::vector<tensor_view>& given) {
  const auto made = paged_layout::of(kind, shape, given);
  return made ? "" : made.error().message();
}

bool says(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(paged_layouts)

BOOST_AUTO_TEST_CASE(what_lies_together_is_one_run) {
  auto engine = tensors(kv_layout::kv_first);
  const auto layout = paged_layout::of(engine.kind, small, engine.views());
  BOOST_REQUIRE(layout);
  BOOST_TEST(layout->layers() == 2U);
  BOOST_TEST(layout->block_bytes() == 2U * 2 * 16 * 8 * 64 * 2);
  const auto pieces = layout->pieces({1, 1});
  BOOST_REQUIRE(pieces.size() == 2U);  // keys, values
  BOOST_TEST(pieces[0].runs == 1U);
  BOOST_TEST(pieces[0].run_bytes == 16U * 8 * 64 * 2);
  BOOST_TEST((pieces[1].base - pieces[0].base == 4 * 16 * 8 * 64 * 2));
  BOOST_TEST(layout->offsets({1, 1})[0] == layout->block_bytes() / 2);
}

BOOST_AUTO_TEST_CASE(a_page_first_pool_is_a_run_a_token) {
  auto engine = tensors(kv_layout::host_page_first);
  const auto layout = paged_layout::of(engine.kind, small, engine.views());
  BOOST_REQUIRE(layout);
  const auto piece = layout->pieces({0, 1})[0];
  BOOST_TEST(piece.runs == 16U);
  BOOST_TEST(piece.run_bytes == 8U * 64 * 2);
  BOOST_TEST(piece.run_stride == 2U * 8 * 64 * 2);
}

BOOST_AUTO_TEST_CASE(a_tensor_that_contradicts_what_was_declared_is_refused_by_name) {
  auto engine = tensors(kv_layout::pages_first);
  auto heads = small;
  heads.heads = 4;
  BOOST_TEST(
      says(refusal(engine.kind, heads, engine.views()), "tensor 0, declared pages_first: axis 3 (heads) has 8, not 4"));
  BOOST_TEST(says(refusal(kv_layout::kv_first, small, engine.views()), "axis 0 (keys and values) has 4, not 2"));
  auto views = engine.views();
  views.pop_back();
  BOOST_TEST(says(refusal(engine.kind, small, views), "2 tensors; there are 1"));
  views = engine.views();
  views[1].sizes.pop_back();
  BOOST_TEST(says(refusal(engine.kind, small, views), "tensor 1, declared pages_first: it has 4 sizes"));
  views = engine.views();
  views[1].base = nullptr;
  BOOST_TEST(says(refusal(engine.kind, small, views), "has no address"));
}

BOOST_AUTO_TEST_CASE(strides_that_overlap_are_refused_by_name) {
  auto engine = tensors(kv_layout::pages_first);
  auto views = engine.views();
  views[0].strides[2] = 64;  // tokens as far apart as heads
  BOOST_TEST(says(refusal(engine.kind, small, views), "bytes apart; what lies within one takes"));
  views = engine.views();
  views[1].strides[4] = 2;
  BOOST_TEST(says(refusal(engine.kind, small, views), "tensor 1, declared pages_first: items of a head are 4 bytes"));
  views = engine.views();
  views[0].strides[0] = ~std::uint64_t{0} / 2;
  BOOST_TEST(says(refusal(engine.kind, small, views), "absurd"));
}

BOOST_AUTO_TEST_CASE(an_engine_may_have_more_pages_than_it_declares) {
  auto engine = tensors(kv_layout::pool);
  auto fewer = small;
  fewer.pages = 3;
  BOOST_TEST(refusal(engine.kind, fewer, engine.views()).empty());
  fewer.pages = 5;
  BOOST_TEST(says(refusal(engine.kind, fewer, engine.views()), "axis 0 (slots) has 64, not 80"));
}

BOOST_AUTO_TEST_CASE(shapes_that_cannot_be_are_refused) {
  auto engine = tensors(kv_layout::latent, {2, 4, 16, 1, 64, 2});
  BOOST_TEST(!refusal(engine.kind, {}, engine.views()).empty());
  BOOST_TEST(!paged_layout::of_pieces({}, 1, 1));
  std::byte any{};
  const strided_piece piece{&any, 1, 1};
  BOOST_TEST(!paged_layout::of_pieces({piece, piece, piece}, 2, 1));
  BOOST_TEST(!paged_layout::of_pieces({{&any, 1, 0}}, 1, 1));
  const auto large = paged_layout::of_pieces({{&any, 1, std::uint64_t{1} << 33, std::uint64_t{1} << 33}}, 1, 1);
  BOOST_REQUIRE(!large);
  BOOST_TEST((large.error().code() == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_CASE(moves_that_would_leave_the_tensors_are_refused) {
  auto engine = tensors(kv_layout::fused);
  const auto layout = paged_layout::of(engine.kind, small, engine.views());
  BOOST_REQUIRE(layout);
  std::byte block{};
  std::vector<std::uint64_t> pages{3};
  std::vector<std::byte*> blocks{&block};
  BOOST_TEST(layout->check({pages, blocks}, layout->all_layers()).has_value());
  BOOST_TEST(!layout->check({pages, blocks}, {1, 2}));
  BOOST_TEST(!layout->check({pages, blocks}, {3, 0}));
  BOOST_TEST(!layout->check({pages, {}}, {0, 1}));
  blocks[0] = nullptr;
  BOOST_TEST(!layout->check({pages, blocks}, {0, 1}));
  blocks[0] = &block;
  pages[0] = 4;
  const auto beyond = layout->check({pages, blocks}, {0, 1});
  BOOST_REQUIRE(!beyond);
  BOOST_TEST(says(beyond.error().message(), "no page 4 of 4"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::paged_layout_test
