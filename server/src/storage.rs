//! Where finished files are kept: an object store, by default a folder.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::body::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};

/// Bytes sent at once. The smallest that every provider of object stores takes for all parts but the last.
const PART_BYTES: usize = 5 * 1024 * 1024;

/// Keeps files under names without meaning. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
}

/// A file on its way in.
pub struct Upload {
    upload: Option<Box<dyn MultipartUpload>>,
    object: String,
}

impl Upload {
    /// Sends the next part. All but the last must be as [`FileStore::parts`] cuts them.
    ///
    /// # Errors
    /// What the store answers; the upload cannot go on then.
    pub async fn put(&mut self, part: Bytes) -> object_store::Result<()> {
        match &mut self.upload {
            Some(upload) => upload.put_part(PutPayload::from_bytes(part)).await,
            None => Ok(()),
        }
    }

    /// Makes the file appear.
    ///
    /// # Errors
    /// What the store answers; whether the file is there is unknown then.
    pub async fn finish(mut self) -> object_store::Result<()> {
        if let Some(mut upload) = self.upload.take() {
            upload.complete().await?;
        }
        Ok(())
    }
}

impl Drop for Upload {
    /// An upload that was not finished leaves nothing behind, also when its task was ended in the middle.
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let object = std::mem::take(&mut self.object);
        // Without a runtime the process is ending, and the store's own clean-up has to do.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Err(error) = upload.abort().await {
                tracing::warn!(object, %error, "an unfinished upload could not be removed");
            }
        });
    }
}

/// A file on its way out.
pub struct StoredFile {
    /// Its size.
    pub bytes: u64,
    /// Its content.
    pub content: BoxStream<'static, object_store::Result<Bytes>>,
}

impl FileStore {
    /// Files in `root`, which is created if it is not there.
    ///
    /// # Errors
    /// If the folder cannot be created or entered.
    pub fn in_folder(root: &FilePath) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        std::fs::create_dir_all(root).with_context(|| format!("cannot create the folder {}", root.display()))?;
        // A job that says "ready" must still have its file after a power cut.
        let folder = LocalFileSystem::new_with_prefix(root)?.with_fsync(true).with_automatic_cleanup(true);
        Ok(Self { objects: Arc::new(folder) })
    }

    /// Begins to store `object`, which appears whole or not at all.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn begin(&self, object: &str) -> object_store::Result<Upload> {
        Ok(Upload { upload: Some(self.objects.put_multipart(&path(object)?).await?), object: object.to_owned() })
    }

    /// A content in the parts that [`Upload::put`] takes, at least one.
    pub fn parts(content: Bytes) -> impl Iterator<Item = Bytes> + Send {
        let n_parts = content.len().div_ceil(PART_BYTES).max(1);
        (0..n_parts).map(move |n| content.slice(n * PART_BYTES..content.len().min((n + 1) * PART_BYTES)))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, or what the store answers.
    pub async fn get(&self, object: &str) -> object_store::Result<StoredFile> {
        let found = self.objects.get(&path(object)?).await?;
        Ok(StoredFile { bytes: found.meta.size, content: found.into_stream().boxed() })
    }

    /// Whether a file is there.
    ///
    /// # Errors
    /// What the store answers, unless that is `NotFound`.
    pub async fn exists(&self, object: &str) -> object_store::Result<bool> {
        match self.objects.head(&path(object)?).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file. One that is not there is fine.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn delete(&self, object: &str) -> object_store::Result<()> {
        match self.objects.delete(&path(object)?).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// The names of all files in `folder`.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn list(&self, folder: &str) -> object_store::Result<Vec<String>> {
        self.objects.list(Some(&path(folder)?)).map_ok(|found| found.location.to_string()).try_collect().await
    }
}

/// Refuses `..`, empty segments and what else is no plain name.
fn path(object: &str) -> object_store::Result<Path> {
    Ok(Path::parse(object)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!("jobdeck-files-{}", uuid::Uuid::now_v7()));
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    async fn read(files: &FileStore, object: &str) -> Vec<u8> {
        let file = files.get(object).await.unwrap();
        let parts: Vec<_> = file.content.try_collect().await.unwrap();
        assert_eq!(file.bytes, parts.iter().map(|part| part.len() as u64).sum::<u64>());
        parts.concat()
    }

    async fn store(files: &FileStore, object: &str, content: Vec<u8>) -> usize {
        let mut upload = files.begin(object).await.unwrap();
        let mut n_parts = 0;
        for part in FileStore::parts(content.into()) {
            upload.put(part).await.unwrap();
            n_parts += 1;
        }
        upload.finish().await.unwrap();
        n_parts
    }

    #[tokio::test]
    async fn file_is_put_read_listed_and_deleted() {
        let folder = Folder::new();
        let files = FileStore::in_folder(&folder.0).unwrap();
        let content: Vec<u8> = (0..2 * PART_BYTES + 11).map(|n| n as u8).collect();
        assert_eq!(store(&files, "exports/a/1.pdf", content.clone()).await, 3);
        assert!(read(&files, "exports/a/1.pdf").await == content);
        assert_eq!(files.list("exports/a").await.unwrap(), ["exports/a/1.pdf"]);
        assert!(files.exists("exports/a/1.pdf").await.unwrap() && !files.exists("exports/a/2.pdf").await.unwrap());
        files.delete("exports/a/1.pdf").await.unwrap();
        files.delete("exports/a/1.pdf").await.unwrap();
        assert!(matches!(files.get("exports/a/1.pdf").await, Err(object_store::Error::NotFound { .. })));
        assert!(files.list("exports/a").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn stopped_upload_leaves_nothing() {
        let folder = Folder::new();
        let files = FileStore::in_folder(&folder.0).unwrap();
        let mut upload = files.begin("exports/a/1.pdf").await.unwrap();
        upload.put(vec![1; 10].into()).await.unwrap();
        let staged = || std::fs::read_dir(folder.0.join("exports/a")).map_or(0, Iterator::count);
        assert_eq!((staged(), files.list("exports").await.unwrap().len()), (1, 0));
        drop(upload);
        tokio::time::timeout(std::time::Duration::from_secs(10), async {
            while staged() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("the staged file is removed");
    }

    #[tokio::test]
    async fn empty_file_is_a_file() {
        let folder = Folder::new();
        let files = FileStore::in_folder(&folder.0).unwrap();
        assert_eq!(store(&files, "exports/a/1.html", Vec::new()).await, 1);
        assert!(read(&files, "exports/a/1.html").await.is_empty());
    }

    #[tokio::test]
    async fn names_that_leave_the_folder_are_refused() {
        let folder = Folder::new();
        let files = FileStore::in_folder(&folder.0).unwrap();
        for object in ["../x", "exports/../../x", "exports//x", "exports/./x"] {
            assert!(matches!(files.get(object).await, Err(object_store::Error::InvalidPath { .. })), "{object}");
        }
    }
}
