//! Questions and answers are written as they were read, and an answer that cannot be read is still somebody's.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Numbered, understood};
use crate::fuzzing::{agree, stays_the_same};
use crate::request::wire::fuzzed::frames_of;

pub(crate) fn read<Q, A>(bytes: &[u8])
where
    Q: Serialize + DeserializeOwned,
    A: Serialize + DeserializeOwned,
{
    for frame in frames_of(&[bytes]) {
        stays_the_same::<Numbered<Q>>(&frame);
        let answer = stays_the_same::<Numbered<A>>(&frame);
        if let Ok((id, understood)) = understood::<A>(&frame) {
            agree(&answer.map(|answer| answer.id), &understood.is_ok().then_some(id));
        }
    }
}
